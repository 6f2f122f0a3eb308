"""Starts our own Python programs in folders that are not ours. A broker is started in the folder that it serves, and
awaited until it answers."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from gsd_review_broker.client import RunningBroker, Target, find
from gsd_review_broker.processes import is_alive, send_signal, start_of
from gsd_review_broker.settings.state_files import runtime_path

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
    """A short program of the standard library alone: the folder and the environment choose nothing that it imports."""
    return [sys.executable, "-I", "-S", "-c", program, *arguments]


def safe_environment(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The same for whatever Python the child starts."""
    return {**inherited, "PYTHONSAFEPATH": "1"}


class Process(Protocol):
    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...


class DetachedProcess:
    """Not a child of ours, so there is no exit code: only whether it still runs."""

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
    """In a session of its own: Ctrl-C in our terminal does not reach it."""
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
    """With no process of ours above it: some clients stop all descendants of the MCP server that they started."""
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
    """The broker that this very process became. None if the process has exited, or still runs after so long."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        # Cheaper than a call, as long as no broker has announced itself.
        if runtime_path(target.locations.database).exists():
            running = find(target)
            if running is not None and running.pid == process.pid:
                return running
        time.sleep(_LOOK_SECONDS)
    return None
