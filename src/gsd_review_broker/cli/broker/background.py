"""A broker in the background: one for each user and database, however many start it at the same moment."""

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gsd_review_broker.client import RunningBroker, Target, find
from gsd_review_broker.client.discovery import read_runtime_file
from gsd_review_broker.errors import BrokerError, Code, StartError
from gsd_review_broker.settings import locations
from gsd_review_broker.settings.runtime_file import runtime_path

START_SECONDS = 20.0
STOP_SECONDS = 15.0
_LOOK_SECONDS = 0.02
_LONGEST_LOG = 1024 * 1024
_PORT_IN_USE = "cannot be used"
_PROGRAM = "__main__.py: "


@dataclass(frozen=True, slots=True)
class Files:
    """What a broker in the background leaves in the platform's state folder."""

    log: Path
    pid: Path
    lock: Path

    @classmethod
    def of(cls, database: Path) -> "Files":
        name = hashlib.sha256(os.fsencode(os.path.realpath(database))).hexdigest()[:16]
        folder = locations.state_folder() / "brokers"
        return cls(log=folder / f"{name}.log", pid=folder / f"{name}.pid", lock=folder / f"{name}.lock")


@dataclass(frozen=True, kw_only=True, slots=True)
class StartedBroker:
    broker: RunningBroker
    is_new: bool
    log: Path


def start(target: Target, *, flags: Sequence[str] = (), port_is_free: bool = True) -> StartedBroker:
    """The running broker; started if there is none. `flags` are the broker's own; with `port_is_free` nobody has
    chosen the port, and another than the usual one will do."""
    files = Files.of(target.locations.database)
    running = find(target)
    if running is not None:
        return StartedBroker(broker=running, is_new=False, log=files.log)
    files.lock.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(files.lock):
        # Whoever waited for the lock finds what its holder started.
        running = find(target)
        if running is not None:
            return StartedBroker(broker=running, is_new=False, log=files.log)
        if port_is_free and not _can_listen(locations.DEFAULT_PORT):
            flags = [*flags, "--port", "0"]
        return StartedBroker(broker=_launched(target, files, flags), is_new=True, log=files.log)


def stop(broker: RunningBroker, database: Path, *, force: bool = False) -> None:
    """It answered a moment ago with this pid, so the pid is its own."""
    kind = signal.SIGKILL if force and sys.platform != "win32" else signal.SIGTERM
    broker.connection.close()
    with contextlib.suppress(ProcessLookupError):
        os.kill(broker.pid, kind)
    end = time.monotonic() + STOP_SECONDS
    while _is_alive(broker.pid):
        if time.monotonic() > end:
            raise BrokerError(
                Code.UNAVAILABLE, f"the broker with pid {broker.pid} does not end", "Try `tandem down --force`."
            )
        time.sleep(_LOOK_SECONDS)
    if force:
        # Killed, it could not tidy up.
        runtime_path(database).unlink(missing_ok=True)
    Files.of(database).pid.unlink(missing_ok=True)


def _launched(target: Target, files: Files, flags: Sequence[str]) -> RunningBroker:
    command = [sys.executable, "-m", "gsd_review_broker", *flags]
    folder = target.locations.root or Path.home()
    # What names a running broker to a client is no business of a new one.
    environment = {k: v for k, v in os.environ.items() if k not in {"BROKER_URL", "BROKER_TOKEN", "BROKER_REVIEWER_ID"}}
    _shorten(files.log)
    with files.log.open("ab") as log:
        begin = log.tell()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    files.pid.write_text(json.dumps({"pid": process.pid, "database": str(target.locations.database)}) + "\n")
    end = time.monotonic() + START_SECONDS
    while process.poll() is None:
        announced = read_runtime_file(target.locations.database)
        if announced is not None and announced.get("pid") == process.pid:
            running = find(target)
            if running is not None:
                # It goes on without us; nothing is left to say about it.
                process.returncode = 0
                return running
        if time.monotonic() > end:
            process.terminate()
            raise StartError(f"the broker did not come up within {START_SECONDS:g} s; its log is {files.log}.")
        time.sleep(_LOOK_SECONDS)
    files.pid.unlink(missing_ok=True)
    return _after_failure(target, files, flags, _said(files.log, begin))


def _after_failure(target: Target, files: Files, flags: Sequence[str], said: str) -> RunningBroker:
    # Somebody else may have been quicker, with `tandem serve`.
    running = find(target)
    if running is not None:
        return running
    if _PORT_IN_USE in said and "--port" not in flags:
        return _launched(target, files, [*flags, "--port", "0"])
    raise StartError(f"the broker did not start: {said or 'it said nothing'} (its log is {files.log})")


def _said(log: Path, begin: int) -> str:
    """Its last words: a sentence about why, if there is one among them."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    reasons = [line.lstrip(" |") for line in lines if line.startswith(_PROGRAM) or "Error: " in line]
    return (reasons or lines or [""])[-1].removeprefix(_PROGRAM)


def _shorten(log: Path) -> None:
    """An old log that grew large gives way; the one before it is kept."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > _LONGEST_LOG:
            log.replace(log.with_suffix(".log.old"))


def _can_listen(port: int) -> bool:
    with socket.socket() as trial:
        if sys.platform != "win32":
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _is_alive(pid: int) -> bool:
    if sys.platform == "win32":
        listed = subprocess.run(["tasklist", "/FI", f"PID eq {pid}"], capture_output=True, text=True, check=False)
        return str(pid) in listed.stdout
    with contextlib.suppress(OSError):
        # Our own child, if this very process started it, has to be fetched.
        os.waitpid(pid, os.WNOHANG)
    with contextlib.suppress(OSError, IndexError):
        # Ended, and nobody has asked for its exit code: so it is with a container's first process that never does.
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        """Tried for ten seconds by the system itself, again and again by us."""
        while True:
            with contextlib.suppress(OSError):
                msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
                return
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
