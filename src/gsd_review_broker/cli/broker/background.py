"""Starts and stops a background broker: one for each user and database, however many processes start it at once."""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import urlsplit

from gsd_review_broker.cli.broker import ports
from gsd_review_broker.cli.broker.ports import Files
from gsd_review_broker.cli.context import BROKER_FLAGS
from gsd_review_broker.client import RunningBroker, Target, UnreachableError, find
from gsd_review_broker.client.discovery import described
from gsd_review_broker.errors import BrokerError, Code, StartError
from gsd_review_broker.files import locked, make_private_folder, open_private, write_private
from gsd_review_broker.processes import is_alive, send_signal, start_of
from gsd_review_broker.settings import locations
from gsd_review_broker.settings.state_files import Database, is_postgresql, runtime_path

_LOOK_SECONDS = 0.02
# Starts the program that its arguments name, outside of its own session, tells its number, and exits.
_DETACHER = """\
import os, sys
report = int(sys.argv[1])
child = os.fork()
if child:
    os.write(report, b"%d" % child)
    os._exit(0)
os.close(report)
os.setsid()
os.execv(sys.argv[2], sys.argv[2:])
"""


def python_command(module: str, *arguments: str) -> list[str]:
    """`-P`: otherwise `-m` looks for modules in the working folder first, which is a repository.

    Any `json.py` or `sitecustomize.py` at its root would run with the user's rights.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def isolated_python(program: str, *arguments: str) -> list[str]:
    """Return the command of a program that needs the standard library only: `-I -S` ignores folder and environment."""
    return [sys.executable, "-I", "-S", "-c", program, *arguments]


def safe_environment(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Add the variable that gives `-P` to every Python that the child starts."""
    return {**inherited, "PYTHONSAFEPATH": "1"}


class Process(Protocol):
    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...


class DetachedProcess:
    """A process that is not our child: it has no exit code, it runs or it does not."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._start = start_of(pid)

    def poll(self) -> int | None:
        return None if is_alive(self.pid) and start_of(self.pid) == self._start else 0

    def terminate(self) -> None:
        send_signal(self.pid, self._start, signal.SIGTERM)


def launch(
    flags: Sequence[str], *, folder: Path, environment: Mapping[str, str], log: IO[bytes]
) -> "subprocess.Popen[bytes]":
    """Start the broker in a new session: Ctrl-C in our terminal does not reach it."""
    return subprocess.Popen(
        python_command("gsd_review_broker", *flags),
        cwd=folder,
        env=safe_environment(environment),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def launch_detached(
    flags: Sequence[str], *, folder: Path, environment: Mapping[str, str], log: IO[bytes]
) -> "DetachedProcess | subprocess.Popen[bytes]":
    """Start the broker without a parent: some clients stop all descendants of the MCP server that they started."""
    if sys.platform == "win32":
        return launch(flags, folder=folder, environment=environment, log=log)
    reading, writing = os.pipe()
    broker = python_command("gsd_review_broker", *flags)
    try:
        subprocess.run(
            isolated_python(_DETACHER, str(writing), *broker),
            cwd=folder,
            env=safe_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(writing,),
            start_new_session=True,
            check=True,
        )
        return DetachedProcess(int(os.read(reading, 32)))
    finally:
        os.close(reading)
        os.close(writing)


def await_answer(process: Process, target: Target, *, seconds: float) -> RunningBroker | None:
    """Return the broker in this process; None if the process has exited or does not answer in time."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        # Cheaper than a call, as long as no broker has announced itself.
        if runtime_path(target.locations.database).exists():
            running = find(target)
            if running is not None and running.pid == process.pid:
                return running
        time.sleep(_LOOK_SECONDS)
    return None


START_SECONDS = 20.0
STOP_SECONDS = 15.0
_LONGEST_LOG = 1024 * 1024
_PORT_IN_USE = "cannot be used"
_PROGRAM = "__main__.py: "
_NAMES_OF_A_BROKER = frozenset({"BROKER_URL", "BROKER_TOKEN", "BROKER_REVIEWER_ID"})


def flags_of(options: argparse.Namespace) -> list[str]:
    """Return the flags with which a started broker gets the settings that the options name."""
    passed = {name: getattr(options, name, None) for name in BROKER_FLAGS}
    if options.db is not None and is_postgresql(options.db):
        # Anybody on the machine can read a process's arguments, and an address may hold a password.
        os.environ["BROKER_DB"] = options.db
        del passed["db"]
    words: list[str] = []
    for name, value in passed.items():
        if value is not None:
            # The broker is started in another folder.
            text = str(Path(value).expanduser().absolute()) if name in {"db", "config"} else str(value)
            words += ["--" + name.replace("_", "-"), text]
    return [*words, "--user"] if options.user else words


@dataclass(frozen=True, kw_only=True, slots=True)
class StartedBroker:
    broker: RunningBroker
    is_new: bool
    log: Path


def start(
    target: Target,
    *,
    flags: Sequence[str] = (),
    port: int | None = None,
    config: str | None = None,
    running_since: float | None = None,
) -> StartedBroker:
    """Return the target's broker on this machine; start it if none is running.

    `flags` are the broker's own; `port` and `config` are what the user chose. Without a chosen port, the broker takes
    the database's usual one, if that is free. A client that has been `running_since` a time does not undo a
    `tandem down` after that time.
    """
    target = Target(locations=target.locations, is_explicit=target.is_explicit)
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
        _, origin = locations.setting("port", target.locations.root, flag=port, config=config)
        free = ports.candidates(target.locations.database) if origin == "default" else None
        broker = _launched(target, files, flags, free)
        if free is not None:
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
        process = launch_detached([*flags, *chosen], folder=folder, environment=inherited, log=log)
    owner = json.dumps({"pid": process.pid, "database": str(target.locations.database)}) + "\n"
    write_private(files.pid, owner.encode())
    running = await_answer(process, target, seconds=START_SECONDS)
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
    """Return the log's last line about an error since `begin`, else its last line."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    reasons = [line.lstrip(" |") for line in lines if line.startswith(_PROGRAM) or "Error: " in line]
    return (reasons or lines or [""])[-1].removeprefix(_PROGRAM)


def _shorten(log: Path) -> None:
    """Replace a log that grew large, and keep the previous one."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > _LONGEST_LOG:
            log.replace(log.with_suffix(".log.old"))
