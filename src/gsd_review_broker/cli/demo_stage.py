"""The stage: a scratch repository with a clone for the reviewer, and a broker on a free port. All of it is removed
afterwards.
"""

import contextlib
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from gsd_review_broker.cli import demo_actors
from gsd_review_broker.cli.broker import background
from gsd_review_broker.client import RunningBroker, Target
from gsd_review_broker.errors import StartError
from gsd_review_broker.git.program import run_git
from gsd_review_broker.settings.locations import DATABASE_NAME, PROJECT_FOLDER, Locations
from gsd_review_broker.settings.state_files import Database

_START_SECONDS = 30.0
_END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Stage:
    folder: Path
    broker: RunningBroker
    environment: dict[str, str]

    @property
    def repository(self) -> Path:
        return self.folder / "project"

    @property
    def url(self) -> str:
        return self.broker.connection.url

    def play(self, *, pause: float, deadline: float) -> Iterator[bytes]:
        """Yield the actors' output in order. Raise StartError if one of them fails, or if the time is over."""
        output: queue.Queue[bytes | None] = queue.Queue()
        with contextlib.ExitStack() as stack:
            folders = {"reviewer": self.folder / "reviewer", "proposer": self.repository}
            actors = {name: stack.enter_context(self._actor(name, folders[name], pause)) for name in folders}
            readers = [threading.Thread(target=_listen, args=(one, output), daemon=True) for one in actors.values()]
            for reader in readers:
                reader.start()
            ended = 0
            end = time.monotonic() + deadline
            while ended < len(actors):
                try:
                    line = output.get(timeout=max(0.0, end - time.monotonic()))
                except queue.Empty:
                    raise StartError(f"the demo did not finish within {deadline:g} s.") from None
                if line is None:
                    ended += 1
                else:
                    yield line
            for name, actor in actors.items():
                if actor.wait() != 0:
                    complaint = (actor.stderr.read() if actor.stderr else b"").decode("utf-8", "replace").strip()
                    raise StartError(f"the demo's {name} failed: {complaint.splitlines()[-1] if complaint else '?'}")

    @contextlib.contextmanager
    def _actor(self, name: str, folder: Path, pause: float) -> Generator["subprocess.Popen[bytes]"]:
        process = subprocess.Popen(
            background.python_command("gsd_review_broker.cli.demo_actors", name, str(folder), self.url, str(pause)),
            cwd=folder,
            env=background.safe_environment(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Ctrl-C goes to the narrator, which then stops the others in order.
            start_new_session=True,
        )
        with _ended_after(process):
            yield process


def _listen(actor: "subprocess.Popen[bytes]", output: "queue.Queue[bytes | None]") -> None:
    assert actor.stdout is not None  # noqa: S101 - it was piped
    for line in actor.stdout:
        output.put(line)
    output.put(None)


@contextlib.contextmanager
def built() -> Generator[Stage]:
    # If it is stopped from outside, it still removes everything.
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with tempfile.TemporaryDirectory(prefix="tandem-demo-", ignore_cleanup_errors=True) as name:
            folder = Path(os.path.realpath(name))
            environment = _environment(folder)
            _make_repositories(folder, environment)
            database = Database(folder / "project" / PROJECT_FOLDER / DATABASE_NAME)
            target = Target(locations=Locations(root=folder / "project", database=database))
            with _broker(folder, target, environment) as broker:
                yield Stage(folder, broker, environment)
                broker.connection.close()
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _environment(folder: Path) -> dict[str, str]:
    """Leave out the user's own settings: a pool that is enabled there must not start for a demo."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("BROKER_", "XDG_", "TANDEM_", "GIT_"))}
    home = folder / "home"
    home.mkdir()
    names = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _AUTHOR.items()}
    return {**kept, **names, "HOME": str(home), "USERPROFILE": str(home), "GIT_CONFIG_NOSYSTEM": "1"}


_AUTHOR = {"NAME": "Tandem demo", "EMAIL": "demo@example.invalid"}


def _make_repositories(folder: Path, environment: dict[str, str]) -> None:
    project = folder / "project"
    project.mkdir()
    (project / demo_actors.FILE).write_text(demo_actors.ORIGINAL, "utf-8")
    for command in (
        ["init", "-q", "-b", "main"],
        ["add", "-A"],
        ["commit", "-q", "-m", "Say hello"],
        ["-c", "protocol.file.allow=always", "clone", "-q", str(project), str(folder / "reviewer")],
    ):
        answer = run_git(project, *command, environment=environment)
        if answer.code != 0:
            raise RuntimeError(answer.why)


@contextlib.contextmanager
def _broker(folder: Path, target: Target, environment: dict[str, str]) -> Generator[RunningBroker]:
    path = folder / "broker.log"
    with path.open("wb") as log:
        process = background.launch(["--port", "0"], folder=folder / "project", environment=environment, log=log)
    with _ended_after(process):
        broker = background.await_answer(process, target, seconds=_START_SECONDS)
        if broker is None:
            output = path.read_text("utf-8", "replace").strip()
            raise StartError(f"the demo's broker did not start: {output[-500:]}")
        yield broker


@contextlib.contextmanager
def _ended_after(process: "subprocess.Popen[bytes]") -> Generator[None]:
    with process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
