"""Starts our two programs in forks of one process for each worker: see `fork_server.py`.

`make test EXEC=1` starts every program by exec, as people do; so do the tests of starting, and every system without
pidfds.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.support.environment import AT_START

TESTS = Path(__file__).parents[1]
# These are read when an interpreter starts, so that a fork would not see them.
_READ_AT_START = ("PYTHON", "LC_", "LANG", "COVERAGE_")


def can_fork(environment: Mapping[str, str]) -> bool:
    return (
        hasattr(os, "pidfd_open")
        and "TANDEM_TEST_EXEC" not in os.environ
        and _read_at_start(environment) == _read_at_start(AT_START)
    )


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}


class Forked:
    """The part of subprocess.Popen that tests use."""

    def __init__(
        self, program: str, arguments: tuple[str, ...], folder: Path, environment: Mapping[str, str],
        streams: tuple[int, int, int],
    ) -> None:  # fmt: skip
        self.returncode: int | None = None
        self.args = [program, *arguments]
        request = {
            "program": program,
            "arguments": arguments,
            "folder": str(folder),
            "environment": dict(environment),
        }
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect(_server())
        socket.send_fds(self._connection, [json.dumps(request).encode()], list(streams))
        self._lines = self._connection.makefile("rb")
        self.pid = int(self._lines.readline())

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            self.returncode = int(self._lines.readline())
            self._lines.close()
            self._connection.close()
        return self.returncode

    def send_signal(self, kind: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, kind)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_forked(
    command: list[str], folder: Path, environment: Mapping[str, str], *, stdin: bytes | None, timeout: float
) -> "subprocess.CompletedProcess[bytes]":
    """As subprocess.run with `capture_output`. Without `stdin`, standard input is empty."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin or b"")
        given.seek(0)
        program, *arguments = command
        streams = (given.fileno(), out.fileno(), err.fileno())
        running = Forked(program, tuple(arguments), folder, environment, streams)
        try:
            code = running.wait(timeout)
        except BaseException:
            # Also where the test's own time is over.
            running.kill()
            running.wait()
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, code, out.read(), err.read())


@cache
def _server() -> str:
    """Its address. It is started with the first program of a worker."""
    folder = tempfile.TemporaryDirectory(prefix="tandem-forks-")
    address = f"{folder.name}/socket"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(address)
    listening.listen(100)
    os.set_inheritable(listening.fileno(), True)
    running = subprocess.Popen(
        [sys.executable, "-m", "tests.support.fork_server", str(listening.fileno())],
        cwd=TESTS.parent, env=AT_START, stdin=subprocess.PIPE, pass_fds=[listening.fileno()],
    )  # fmt: skip
    listening.close()

    def stop() -> None:
        running.communicate()
        folder.cleanup()

    atexit.register(stop)
    return address
