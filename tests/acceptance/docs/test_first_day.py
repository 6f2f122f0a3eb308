"""The commands of the README and of docs/clients.md, typed in their order by somebody who has just cloned this.

The home folder is new, another project has a broker already, and the agents and pipx are stand-ins. Everything else is
real: the terminal, the commands, the brokers, git, and the programs that the agents' entries name.
"""

import json
import os
import re
import tomllib
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.support.accounts import put
from tests.support.processes import BrokerProcess, free_environment, git, make_repository
from tests.support.tandem import PROGRAM
from tests.support.terminal import Terminal

PAGES = Path(__file__).parents[3]
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_QUESTION = re.compile(r"Which one\? \[\d+\]|\[Y/n\]")
_IDENTIFIER = re.compile(r"\bID\b")
# Other tests run these: they take minutes, or another program of this repository.
_ELSEWHERE = ("make run ", ".venv/bin/tandem demo\n")
PIPX = '#!/bin/sh\n[ "$*" = "install ." ] && [ -f pyproject.toml ] && ln -s {program} {folder}/tandem\n'
DIFF = """diff --git a/src/app.py b/src/app.py
--- a/src/app.py
+++ b/src/app.py
@@ -1 +1 @@
-print("hello")
+print("bonjour")
"""


def blocks(page: str) -> list[str]:
    found = _BLOCK.findall((PAGES / page).read_text())
    return [block for block in found if not block.startswith(_ELSEWHERE)]


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
    put(programs / "pipx", PIPX.format(program=PROGRAM, folder=programs), mode=0o755)
    put(own_home / ".gitconfig", "[user]\nname = Ada\nemail = ada@example.invalid\n")
    clone = tmp_path / "clone"
    put(clone / "pyproject.toml", "")
    project = make_repository(tmp_path / "your-project", {"src/app.py": 'print("hello")\n'})
    with BrokerProcess(make_repository(tmp_path / "other"), home=own_home) as other:
        # On the port that everybody has by default; if it is taken, whoever has it is in the way just as well.
        other.stop()
        with suppress(AssertionError):
            other.start(port=8321)
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
    set_up, proposing, reviewing, landing, pool = blocks("README.md")
    project = tmp_path / "your-project"

    # Your project in three commands: the third is the sentence in the agent, whose entry is used here.
    shown = person.types(set_up)
    assert person.folder == project
    assert "Claude Code proposes, Codex reviews." in shown
    assert "/tandem:propose" in shown
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

    # A long line is wrapped at the terminal's edge.
    assert "agent is codex" in person.types(pool).replace("\n", "")

    # The guide's steps, and then the other direction: Codex proposes.
    person.folder = tmp_path
    for block in blocks("docs/clients.md"):
        person.types(block)
    assert person.folder == project
    last = await propose(person, entry_of_codex(project), "Say it again", DIFF.replace("hello", "salut"))
    person.types(f"tandem approve {last}")
    assert (last, "approved") in [(row["id"], row["status"]) for row in person.reviews()]
