"""`tandem` as people and agents run it: the real executable, in a real folder."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.forks import can_fork, run_forked
from tests.support.processes import BrokerProcess, free_environment, git, make_repository

PROGRAM = str(Path(sys.executable).parent / "tandem")


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, str]:
        """With --json: the only document is the error."""
        return self.json["error"]


def interruptible() -> None:
    """Runs in a child before its program: tests started from a background job would pass on that Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Running(subprocess.Popen[bytes]):
    """Stopped with its block, also if a test fails inside."""

    def __exit__(self, *error: object) -> None:
        if self.poll() is None:
            self.kill()
        super().__exit__(*error)


class Tandem:
    def __init__(self, folder: Path, home: Path, **environment: str) -> None:
        self.folder = folder
        self.home = home
        names = {"TERM": "dumb", "LOGNAME": "ada", "USER": "ada", **environment}
        unwanted = ("TANDEM_", "GIT_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "PAGER")
        kept = {k: v for k, v in free_environment(home).items() if not k.startswith(unwanted)}
        self.environment = {**kept, **names}

    def run(self, *arguments: str, stdin: bytes | None = None, timeout: float = 60, **environment: str) -> Said:
        command, variables = [PROGRAM, *arguments], {**self.environment, **environment}
        if can_fork(variables):
            done = run_forked(command, self.folder, variables, stdin=stdin, timeout=timeout)
        else:
            # Standard input is empty if none is given: a command must not wait for it.
            done = subprocess.run(
                command, cwd=self.folder, env=variables, input=stdin or b"", capture_output=True, timeout=timeout,
                check=False,
            )  # fmt: skip
        return Said(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: str, **environment: str) -> Running:
        return Running(
            [PROGRAM, *arguments],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=interruptible,
        )

    def piped(self, *arguments: str, stdin: bytes) -> Running:
        """Started with this on its standard input, which is a file, so that nobody has to write to it."""
        with tempfile.TemporaryFile() as file:
            file.write(stdin)
            file.seek(0)
            return Running(
                [PROGRAM, *arguments], cwd=self.folder, env=self.environment, stdin=file, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )  # fmt: skip

    def __call__(self, *arguments: str, **more: Any) -> Any:
        """With --json; it has to succeed."""
        result = self.run(*arguments, "--json", **more)
        assert result.code == 0, (arguments, result)
        return result.json


def broker_of_module(factory: pytest.TempPathFactory, files: dict[str, str] | None = None) -> Generator[BrokerProcess]:
    """One broker for all tests of a module: otherwise its start would take most of a test's time."""
    folder = factory.mktemp("broker")
    (folder / "home").mkdir()
    repository = make_repository(folder / "repository", files)
    with BrokerProcess(repository, home=folder / "home") as running:
        shutil.copytree(repository / ".git", folder / "git")
        yield running


def put_back(process: BrokerProcess) -> Path:
    """Restores the repository of such a broker."""
    shutil.rmtree(process.folder / ".git")
    shutil.copytree(process.folder.parent / "git", process.folder / ".git")
    # First, because attributes in the work tree decide what git writes there.
    git(process.folder, "clean", "-qffdx", "-e", ".planning")
    git(process.folder, "reset", "-q", "--hard")
    return process.folder
