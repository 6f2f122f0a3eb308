"""The commands of the README and of docs/clients.md, typed in their order by somebody who has just cloned this.

The home folder is new, another project's broker has port 8321, and what runs is the package as it is built and
installed from a copy of this repository, and not the source in this folder. The terminal, the commands, the brokers,
git, and the programs that the agents' entries name are real. These are stand-ins:

- `pipx` builds and installs the package with pip, as pipx does, but takes the packages that it depends on from here:
  pipx would fetch them from the network, which takes a minute.
- `make run` and `make test` are planned and not run (`make -n`): both would set up a virtual environment from the
  network, and the second runs this test.
- `tandem demo` has tests of its own (tests/acceptance/cli/test_demo.py).
- The agents are programs that only have a version: the real ones are large, and need a model. `make test-clients` runs
  them, with a scripted one. What they would call is called here through the entries that were written for them.
- If another program of this machine has port 8321, that one is in the way instead of the other project's broker.
"""

import json
import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import tomllib
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from gsd_review_broker.cli.broker import ports
from tests.support.accounts import put
from tests.support.processes import BrokerProcess, free_environment, git, make_repository
from tests.support.tandem import PROGRAM
from tests.support.terminal import Terminal

PAGES = Path(__file__).parents[3]
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_QUESTION = re.compile(r"Which one\? \[\d+\]|\[Y/n\]")
_IDENTIFIER = re.compile(r"\bID\b")
_MAKE, _DEMO = "make run ", ".venv/bin/tandem demo\n"
DEFAULT_PORT = 8321
PIPX = """#!/bin/sh
set -e
[ "$*" = "install ." ]
{python} -m venv --without-pip {venv}
echo {packages} > {venv}/lib/python{version}/site-packages/shared.pth
{python} -m pip --python {venv}/bin/python --quiet --disable-pip-version-check \\
    install --no-index --no-deps --no-build-isolation .
ln -s {venv}/bin/tandem {venv}/bin/gsd-review-broker {programs}
"""
# What the package is built from.
_SOURCE = ("pyproject.toml", "README.md", "LICENSE", "src")
DIFF = """diff --git a/src/app.py b/src/app.py
--- a/src/app.py
+++ b/src/app.py
@@ -1 +1 @@
-print("hello")
+print("bonjour")
"""


def blocks(page: str) -> list[str]:
    return _BLOCK.findall((PAGES / page).read_text())


class Person:
    """Types in a terminal, in one folder after the other, and answers each question with Enter."""

    def __init__(self, folder: Path, home: Path, programs: Path) -> None:
        self.folder = folder
        self._place = home / "where"
        system = [name for name in os.environ["PATH"].split(os.pathsep) if Path(name) != Path(PROGRAM).parent]
        kept = {name: value for name, value in free_environment(home).items() if not name.startswith("TANDEM_")}
        path = os.pathsep.join([str(programs), *system])
        self.environment = {**kept, "PATH": path, "USER": "ada", "LOGNAME": "ada", "PAGER": "cat", "GIT_PAGER": "cat"}

    def types(self, commands: str) -> str:
        script = f"{commands}\npwd > {self._place}\n"
        answered = 0
        with Terminal(
            ["bash", "-ec", script], folder=self.folder, environment=self.environment, size=(160, 60)
        ) as terminal:

            def is_over() -> bool:
                nonlocal answered
                if len(_QUESTION.findall(terminal.everything)) > answered:
                    answered += 1
                    terminal.type("\n")
                return terminal.process.poll() is not None

            terminal.until(is_over)
            code, shown = terminal.end(), terminal.everything
        assert code == 0, f"{commands}\n{shown}"
        self.folder = Path(self._place.read_text().strip())
        return shown

    def reviews(self) -> list[dict[str, Any]]:
        shown = self.types("tandem list --json > listed.json; cat listed.json > /dev/null")
        assert shown == ""
        listed = self.folder / "listed.json"
        rows = json.loads(listed.read_text())["reviews"]
        listed.unlink()
        return rows


@pytest.fixture
def person(tmp_path: Path, own_home: Path) -> Generator[Person]:
    programs = tmp_path / "programs"
    for name in ("claude", "codex"):
        put(programs / name, "#!/bin/sh\necho 1.0\n", mode=0o755)
    place = {"python": sys.executable, "venv": own_home / "venv", "packages": site.getsitepackages()[0]}
    quoted = {name: shlex.quote(str(value)) for name, value in {**place, "programs": programs}.items()}
    version = ".".join(map(str, sys.version_info[:2]))
    put(programs / "pipx", PIPX.format(**quoted, version=version), mode=0o755)
    put(own_home / ".gitconfig", "[user]\nname = Ada\nemail = ada@example.invalid\n")
    clone = tmp_path / "clone"
    clone.mkdir()
    for name in _SOURCE:
        copy = shutil.copytree if (PAGES / name).is_dir() else shutil.copy2
        copy(PAGES / name, clone / name)
    project = make_repository(tmp_path / "your-project", {"src/app.py": 'print("hello")\n'})
    with BrokerProcess(make_repository(tmp_path / "other"), home=own_home) as other:
        # On the port that everybody has by default; if it is taken, whoever has it is in the way just as well.
        other.stop()
        with suppress(AssertionError):
            other.start(port=DEFAULT_PORT)
        assert not ports.can_listen(DEFAULT_PORT)
        yield (someone := Person(clone, own_home, programs))
        someone.folder = project
        someone.types("tandem down || true")


async def propose(person: Person, entry: dict[str, Any], intent: str, diff: str) -> str:
    """As the agent does: it starts the program of its entry in the project's folder."""
    server = StdioServerParameters(
        command=entry["command"], args=entry["args"], env=person.environment, cwd=str(person.folder)
    )
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        arguments = {"intent": intent, "agent_type": "agent", "agent_role": "proposer", "phase": "1", "diff": diff}
        created = await session.call_tool("create_review", arguments)
        assert created.structured_content is not None, created
        return created.structured_content["review_id"]


def entry_of_claude(project: Path) -> dict[str, Any]:
    return json.loads((project / ".mcp.json").read_text())["mcpServers"]["gsdreview"]


def entry_of_codex(project: Path) -> dict[str, Any]:
    return tomllib.loads((project / ".codex/config.toml").read_text())["mcp_servers"]["gsdreview"]


async def test_the_readme_and_the_guide_work_as_they_are_written(person: Person, tmp_path: Path) -> None:
    make, demo, set_up, proposing, reviewing, landing, pool = blocks("README.md")
    project = tmp_path / "your-project"
    assert (make.startswith(_MAKE), demo) == (True, _DEMO)
    for target in re.findall(r"^make (\w+)", make, re.MULTILINE):
        subprocess.run(["make", "-n", target], cwd=PAGES, check=True, capture_output=True)

    # Your project in three commands: the third is the sentence in the agent, whose entry is used here.
    shown = person.types(set_up)
    assert person.folder == project
    assert "Claude Code proposes, Codex reviews." in shown
    assert "/tandem:propose" in shown
    assert f":{DEFAULT_PORT}/" not in shown
    installed = person.types("tandem status --json > status.json && cat status.json && rm status.json")
    assert str(project) in installed
    review_id = await propose(person, entry_of_claude(project), "Say it in French", DIFF)
    person.types(f"tandem approve {review_id}")
    assert [(row["id"], row["status"]) for row in person.reviews()] == [(review_id, "approved")]

    # Review by hand, by one person.
    put(project / "src/app.py", 'print("salut")\n')
    person.types(proposing)
    waiting = next(row["id"] for row in person.reviews() if row["status"] == "pending")
    assert "salut" in person.types(_IDENTIFIER.sub(waiting, reviewing))
    person.types(_IDENTIFIER.sub(waiting, landing))
    assert git(project, "log", "-1", "--format=%s") == b"Close the file\n"
    assert git(project, "status", "--porcelain", "--", "src") == b""
    assert {row["id"]: row["status"] for row in person.reviews()} == {review_id: "approved", waiting: "closed"}

    # A long line is wrapped at the terminal's edge, which may be at a space of this sentence.
    assert "agentiscodex" in "".join(person.types(pool).split())

    # The guide's steps, and then the other direction: Codex proposes.
    person.folder = tmp_path
    for block in blocks("docs/clients.md"):
        person.types(block)
    assert person.folder == project
    last = await propose(person, entry_of_codex(project), "Say it again", DIFF.replace("hello", "salut"))
    person.types(f"tandem approve {last}")
    assert (last, "approved") in [(row["id"], row["status"]) for row in person.reviews()]
