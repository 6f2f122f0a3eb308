"""A broker in the background: one for each user and database, however many processes start it at once."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gsd_review_broker.cli.broker import launching, ports
from gsd_review_broker.cli.broker.ports import Files
from gsd_review_broker.client import RunningBroker, Target, UnreachableError, find
from gsd_review_broker.client.discovery import described
from gsd_review_broker.errors import BrokerError, Code, StartError
from gsd_review_broker.files import locked, make_private_folder, open_private, write_private
from gsd_review_broker.processes import is_alive, send_signal, start_of
from gsd_review_broker.settings.state_files import Database, runtime_path

START_SECONDS = 20.0
STOP_SECONDS = 15.0
_LOOK_SECONDS = 0.02
_LONGEST_LOG = 1024 * 1024
_PORT_IN_USE = "cannot be used"
_PROGRAM = "__main__.py: "
_NAMES_OF_A_BROKER = frozenset({"BROKER_URL", "BROKER_TOKEN", "BROKER_REVIEWER_ID"})


@dataclass(frozen=True, kw_only=True, slots=True)
class StartedBroker:
    broker: RunningBroker
    is_new: bool
    log: Path


def start(
    target: Target, *, flags: Sequence[str] = (), port_is_free: bool = True, running_since: float | None = None
) -> StartedBroker:
    """The running broker; started if there is none.

    `flags` are the broker's own. With `port_is_free` the user has not chosen the port: it is the database's usual one,
    if that is free. A client that has been `running_since` a time does not undo a `tandem down` after that time.
    """
    files = Files.of(target.locations.database)
    running = find(target)
    if running is not None:
        return StartedBroker(broker=running, is_new=False, log=files.log)
    make_private_folder(files.lock.parent)
    with locked(files.lock):
        # A caller that waited for the lock finds what its holder started.
        running = find(target)
        if running is not None:
            return StartedBroker(broker=running, is_new=False, log=files.log)
        if running_since is not None and _was_stopped_after(running_since, files):
            raise UnreachableError(
                f"the broker that serves {described(target.locations)} was stopped with `tandem down`",
                "Start it with `tandem up`.",
            )
        free = ports.candidates(target.locations.database) if port_is_free else None
        broker = _launched(target, files, flags, free)
        if port_is_free:
            ports.remember(target.locations.database, urlsplit(broker.connection.url).port or ports.ANY)
        return StartedBroker(broker=broker, is_new=True, log=files.log)


def stop(broker: RunningBroker, database: Database, *, force: bool = False) -> None:
    """Signals only the process that proved a moment ago that it is our broker; its number may be reused by now."""
    files = Files.of(database)
    make_private_folder(files.stopped.parent)
    # First of all: a client that waits looks for the broker as soon as its connection breaks.
    write_private(files.stopped, b"")
    kind = signal.SIGKILL if force and sys.platform != "win32" else signal.SIGTERM
    broker.connection.close()
    if not send_signal(broker.pid, broker.process_start, kind):
        raise BrokerError(
            Code.UNAVAILABLE,
            f"the broker with pid {broker.pid} is not a process that can be stopped from here",
            "It may have stopped just now, or run in a container: `tandem status` looks again.",
        )
    end = time.monotonic() + STOP_SECONDS
    while start_of(broker.pid) == broker.process_start and is_alive(broker.pid):
        if time.monotonic() > end:
            raise BrokerError(
                Code.UNAVAILABLE, f"the broker with pid {broker.pid} does not stop", "Try `tandem down --force`."
            )
        time.sleep(_LOOK_SECONDS)
    if force:
        # A killed broker could not clean up.
        runtime_path(database).unlink(missing_ok=True)
    files.pid.unlink(missing_ok=True)


def _was_stopped_after(moment: float, files: Files) -> bool:
    try:
        return files.stopped.stat().st_mtime >= moment
    except FileNotFoundError:
        return False


def _launched(target: Target, files: Files, flags: Sequence[str], free: Iterator[int] | None) -> RunningBroker:
    """`free` are ports to try one after the other; None if the flags or the settings name the port."""
    chosen = () if free is None else ("--port", str(next(filter(ports.can_listen, free), ports.ANY)))
    # Variables that name a running broker to a client are not meant for a new broker.
    inherited = {k: v for k, v in os.environ.items() if k not in _NAMES_OF_A_BROKER}
    _shorten(files.log)
    with open(open_private(files.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as log:  # noqa: PTH123 - a descriptor
        begin = log.tell()
        folder = target.locations.root or Path.home()
        process = launching.launch_detached([*flags, *chosen], folder=folder, environment=inherited, log=log)
    owner = json.dumps({"pid": process.pid, "database": str(target.locations.database)}) + "\n"
    write_private(files.pid, owner.encode())
    running = launching.await_answer(process, target, seconds=START_SECONDS)
    if running is not None:
        files.stopped.unlink(missing_ok=True)
        if isinstance(process, subprocess.Popen):
            # It goes on without us; without a code, subprocess would warn about a child that still runs.
            process.returncode = 0
        return running
    if process.poll() is None:
        process.terminate()
        raise StartError(f"the broker did not come up within {START_SECONDS:g} s; its log is {files.log}.")
    files.pid.unlink(missing_ok=True)
    output = _said(files.log, begin)
    # Another process may have been quicker, with `tandem serve`.
    running = find(target)
    if running is not None:
        return running
    if _PORT_IN_USE in output and free is not None:
        return _launched(target, files, flags, free)
    raise StartError(f"the broker did not start: {output or 'it said nothing'} (its log is {files.log})")


def _said(log: Path, begin: int) -> str:
    """Its last output: a sentence about the reason, if there is one."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    reasons = [line.lstrip(" |") for line in lines if line.startswith(_PROGRAM) or "Error: " in line]
    return (reasons or lines or [""])[-1].removeprefix(_PROGRAM)


def _shorten(log: Path) -> None:
    """A log that grew large is replaced; the previous one is kept."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > _LONGEST_LOG:
            log.replace(log.with_suffix(".log.old"))
