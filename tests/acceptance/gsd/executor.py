"""What the real clients play here: an executor of GSD that reads the skill, is refused, proposes, waits and commits.

A scripted model answers them. Another thread is the reviewer."""

import json
import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

from tests.support.model_server import ModelServer, Step
from tests.support.processes import git
from tests.support.real_gsd import Machine
from tests.support.tandem import Tandem
from tests.support.waiting import until

PATH = os.pathsep.join(
    filter(None, [str(Path(sys.executable).parent), os.environ.get("TANDEM_CLIENTS"), os.environ["PATH"]])
)
PROPOSE = (
    "tandem propose --staged -m 'Say it in French' --agent-type gsd-executor --phase 01 --plan 01-01 --task 1 "
    "--category code_change --wait 60"
)
COMMIT = "git commit -q -m 'feat(01-01): say it in French'"
_RUNNING = re.compile(r"Process running with session ID (\d+)")
COMMANDS = ("tandem gsd rules", COMMIT, PROPOSE, COMMIT)


class Numbered(Step):
    """A client takes two calls with one id for the same."""

    def __init__(self, number: int, tool: str, **arguments: Any) -> None:
        super().__init__(tool=tool, arguments=arguments)
        self._number = number

    @property
    def call_id(self) -> str:
        return f"call_{self.tool}_{self._number}"


class Executor(ModelServer):
    """Reads the skill, then runs one command after the other, and says that it is done."""

    # By the client's tool: the argument that holds a command.
    _SHELLS = {"Bash": "command", "exec_command": "cmd", "shell_command": "command"}  # noqa: RUF012

    def __init__(self, skill: Path) -> None:
        super().__init__("approved", "", "")
        self._commands = (f"cat {skill}", *COMMANDS)

    def _next(self, spoken: str, tools: list[str]) -> Step:
        shell = next((name for name in tools if name in self._SHELLS), None)
        if shell is None:
            return Step(text="done")
        running = _RUNNING.search(spoken.rpartition("CALLED:")[2])
        if running:
            # Codex's shell returns while a command waits.
            return Numbered(spoken.count("CALLED:write_stdin"), "write_stdin", session_id=int(running[1]), chars="")
        number = spoken.count(f"CALLED:{shell}")
        if number >= len(self._commands):
            return Step(text="done")
        more = {"description": f"Step {number}"} if shell == "Bash" else {}
        return Numbered(number, shell, **{self._SHELLS[shell]: self._commands[number]}, **more)

    @property
    def heard(self) -> str:
        return json.dumps([request for _, request in self.requests])


def approve_when_it_comes(tandem: Tandem) -> threading.Thread:
    def claimed() -> str | None:
        result = tandem.run("claim", "--as", "codex", "--json")
        return result.json["review_id"] if result.code == 0 else None

    def approve() -> None:
        tandem("approve", until(claimed, 150), "--as", "codex")

    thread = threading.Thread(target=approve)
    thread.start()
    return thread


def assert_it_followed_the_skill(heard: str, machine: Machine, tandem: Tandem) -> None:
    assert "Review before it lands" in heard
    assert "Checkpoints that need an approval: plan, execute, verify" in heard
    assert "tandem gate: refused: 1 commit without an approved review." in heard
    assert "approved" in heard.partition("tandem propose --staged -m 'Say it")[2]
    assert git(machine.project, "log", "-1", "--format=%s") == b"feat(01-01): say it in French\n"
    assert tandem("gate", "status")["commits"] == []
    (row,) = tandem("list")["reviews"]
    assert (row["agent_type"], row["phase"], row["plan"], row["task"]) == ("gsd-executor", "01", "01-01", "1")
