"""The real broker as a real process, and real git repositories for it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Self

from gsd_review_broker.git.objects import PLACE as SCRATCH
from gsd_review_broker.git.objects import prefix_of
from gsd_review_broker.pool.launcher import POOL_MARKER
from gsd_review_broker.pool.tree import end_leftovers
from gsd_review_broker.settings.state_files import Database
from tests.support.forks import Forked, can_fork, run_forked
from tests.support.mcp import Mcp
from tests.support.waiting import PATIENCE

DATABASE = ".planning/codex_review_broker.sqlite3"


def git(folder: Path, *arguments: str, stdin: bytes | None = None) -> bytes:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Test",
        "GIT_AUTHOR_EMAIL": "test@example.invalid",
        "GIT_COMMITTER_NAME": "Test",
        "GIT_COMMITTER_EMAIL": "test@example.invalid",
    }
    return subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, input=stdin, capture_output=True, check=True
    ).stdout


def make_repository(folder: Path, files: dict[str, str] | None = None) -> Path:
    """A repository with one commit: a copy of one that is made once, because git takes longer."""
    given = files or {"hello.txt": "one\ntwo\nthree\n"}
    shutil.copytree(_template(tuple(given.items())), folder, symlinks=True, dirs_exist_ok=True)
    # A copied file has another inode: without this, git's plumbing takes it for changed.
    git(folder, "update-index", "-q", "--refresh")
    return folder


@cache
def _template(files: tuple[tuple[str, str], ...]) -> Path:
    folder = Path(_templates().name) / str(_template.cache_info().misses)
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for sample in (folder / ".git" / "hooks").glob("*.sample"):
        sample.unlink()
    for name, content in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    return folder


@cache
def _templates() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="tandem-templates-")


def free_environment(home: Path) -> dict[str, str]:
    """The user's configuration and data are the test's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BROKER_", "XDG_"))}
    return kept | {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "XDG_DATA_HOME": str(home / "data")}


class BrokerProcess:
    """`gsd-review-broker` on a free port, found by its runtime file as clients find it."""

    def __init__(self, folder: Path, *, home: Path, arguments: tuple[str, ...] = (), database: str = DATABASE) -> None:
        self.folder = folder
        self.home = home
        self.database = folder / database
        self.runtime_file = self.database.with_name(self.database.name + ".runtime.json")
        self._arguments = arguments
        self.process: Forked | subprocess.Popen[bytes] | None = None
        self.port = 0
        self._clients: list[Mcp] = []

    def start(self, *, port: int = 0, deadline: float = PATIENCE) -> Self:
        self.runtime_file.unlink(missing_ok=True)
        self.log = (self.home / "broker.log").open("ab")
        self.process = self._started(("--port", str(port), *self._arguments))
        try:
            self._await_port(self.process, deadline)
        except BaseException:
            # `with` calls __exit__ only after a start that succeeded.
            self.stop(signal.SIGKILL)
            raise
        return self

    def _started(self, arguments: tuple[str, ...]) -> "Forked | subprocess.Popen[bytes]":
        environment = free_environment(self.home)
        if can_fork(environment):
            with Path(os.devnull).open("rb") as nothing:
                streams = (nothing.fileno(), self.log.fileno(), self.log.fileno())
                return Forked("gsd-review-broker", arguments, self.folder, environment, streams)
        return subprocess.Popen(
            [sys.executable, "-m", "gsd_review_broker", *arguments],
            cwd=self.folder, env=environment, stdout=self.log, stderr=self.log,
        )  # fmt: skip

    def _await_port(self, process: "Forked | subprocess.Popen[bytes]", deadline: float) -> None:
        end = time.monotonic() + deadline
        while time.monotonic() < end:
            if process.poll() is not None:
                raise AssertionError(f"the broker exited with {process.returncode}: {self.output()}")
            if self.runtime_file.exists():
                self.port = int(json.loads(self.runtime_file.read_text())["url"].rsplit(":", 1)[1])
                return
            time.sleep(0.01)
        raise AssertionError(f"the broker did not come up: {self.output()}")

    def output(self) -> str:
        return (self.home / "broker.log").read_text(errors="replace")

    def client(self, path: str = "/mcp") -> Mcp:
        client = Mcp(self.port, path)
        self._clients.append(client)
        return client

    def stop(self, kind: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(kind)
        code = self.process.wait(timeout=PATIENCE)
        self.log.close()
        self._remove_scratch()
        return code

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        if self.process is not None and self.process.poll() is None:
            self.stop(signal.SIGKILL)
        elif not self.log.closed:
            self.log.close()
        self._end_reviewers()

    def _remove_scratch(self) -> None:
        """A broker that is killed during a check leaves its folder to its next start."""
        assert self.process is not None
        for folder in SCRATCH.glob(f"{prefix_of(self.process.pid)}*"):
            shutil.rmtree(folder, ignore_errors=True)

    def _end_reviewers(self) -> None:
        """A broker that is killed leaves its reviewers to its next start, and here there is none."""
        if (self.home / ".local" / "state" / "gsd-review-broker" / "reviewers").exists():
            end_leftovers([], f"{POOL_MARKER}={Database(self.database).key}".encode(), grace=0)


def run_broker(
    folder: Path, home: Path, *arguments: str, timeout: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    """Run until it exits: for starts that must fail."""
    environment = free_environment(home)
    if can_fork(environment):
        done = run_forked(["gsd-review-broker", *arguments], folder, environment, stdin=None, timeout=timeout)
    else:
        done = subprocess.run(
            [sys.executable, "-m", "gsd_review_broker", *arguments],
            cwd=folder, env=environment, capture_output=True, timeout=timeout, check=False,
        )  # fmt: skip
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
