"""The real Codex in a project with GSD and the overlay. A scripted model answers it.

Opt-in: `make test-gsd`, where Codex is found on the PATH or in the folder $TANDEM_CLIENTS."""

import shlex
import shutil
import subprocess

import pytest

from tests.acceptance.gsd.executor import PATH, Executor, approve_when_it_comes, assert_it_followed_the_skill
from tests.acceptance.integrations.test_by_hand import environment_of
from tests.support.accounts import put
from tests.support.processes import git
from tests.support.real_gsd import CLASSIC, CORE, Machine, Package
from tests.support.tandem import Running, Tandem

pytestmark = [pytest.mark.gsd, pytest.mark.timeout(300)]
# The command needs git's folder and the broker, which Codex's sandbox does not give.
WORDS = ("exec", "--json", "-m", "scripted", "--dangerously-bypass-approvals-and-sandbox")


@pytest.mark.parametrize("package", [CLASSIC, CORE], ids=lambda package: package.name)
def test_it_reads_the_skill_is_refused_proposes_waits_and_commits(
    machine: Machine, tandem: Tandem, package: Package
) -> None:
    program = shutil.which("codex", path=PATH)
    if program is None:
        pytest.skip("codex was not found on the PATH or in $TANDEM_CLIENTS")
    machine.prepare(package, "codex")
    tandem("install", "gsd")
    tandem("gate", "install", "--mode", "block")
    # A person has to trust Codex's hooks first; this is what ours runs.
    assert tandem("gsd", "session-start")["broker"]
    put(machine.project / "hello.txt", "bonjour\n")
    git(machine.project, "add", "hello.txt")
    # Codex runs a login shell, which may set its own PATH.
    put(machine.home / ".bash_profile", f"export PATH={shlex.quote(PATH)}\n")
    block = machine.tools(package, "codex", "local", "agent-skills", "gsd-executor")
    skill = machine.project / ".codex" / "skills" / "tandem-review" / "SKILL.md"
    with Executor(skill) as model:
        environment = environment_of("codex", tandem, model.url) | {"PATH": PATH}
        with Running(
            [program, *WORDS, "--", f"Commit it.\n{block}"], cwd=machine.project, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as session:  # fmt: skip
            reviewer = approve_when_it_comes(tandem)
            out, err = session.communicate(timeout=200)
            reviewer.join()
    assert session.returncode == 0, (out[-3000:], err[-3000:])
    assert_it_followed_the_skill(model.heard, machine, tandem)
