"""One child as a stream: lines, then its exit.

Threads read its pipes, so that the event loop is not affected by how much it writes or whether it reads.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gsd_review_broker.pool.output import Allowance, Lines, LogFile

_CHUNK = 1024 * 1024
# Cut into lines in pieces of this size, so that nothing waits for long.
_PIECE = 32 * 1024
# All children together are read at most this fast; one that writes more has to wait.
READ_PER_SECOND = 32 * 1024 * 1024
# How much of one child's output is kept, for its log and for display.
KEPT_PER_SECOND = 256 * 1024
KEPT_AT_ONCE = 2 * 1024 * 1024
# Windows' flag for a new process group.
_NEW_GROUP = 0x200
_LAST_WORDS_SECONDS = 0.5
_READ = Allowance(per_second=READ_PER_SECOND, at_once=READ_PER_SECOND // 4)


@dataclass(frozen=True, slots=True)
class Output:
    """Complete lines that arrived together, as far as they were kept, without the child's secret."""

    lines: list[bytes]


@dataclass(frozen=True, slots=True)
class Exited:
    """A negative code is the number of a signal."""

    code: int


ChildEvent = Output | Exited


class Child:
    """Made by `start`. It leads its own process group and session."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: LogFile, secret: bytes) -> None:
        self._process = process
        self._log = log
        self._secret = secret
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[ChildEvent] = asyncio.Queue()
        self._kept = Allowance(per_second=KEPT_PER_SECOND, at_once=KEPT_AT_ONCE)

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        log: LogFile,
        secret: str = "",
    ) -> "Child":
        """Raise OSError if the program cannot be started. The secret is replaced in everything it prints."""
        process = await asyncio.to_thread(_popen, argv, environment, folder)
        child = cls(process, log, secret.encode())
        readers = [child._in_thread(child._read, pipe) for pipe in (process.stdout, process.stderr)]
        child._in_thread(child._wait, readers)
        return child

    def feed(self, prompt: bytes) -> None:
        """Write the prompt, then close its input. A child that never reads blocks only a thread."""
        self._in_thread(self._write, prompt)

    async def events(self) -> AsyncGenerator[ChildEvent]:
        """Yield events until Exited. The caller then stops what the child left behind and calls `reap`."""
        while True:
            event = await self._events.get()
            yield event
            if isinstance(event, Exited):
                return

    def signal(self, kind: signal.Signals) -> None:
        """Signal the whole group. Its leader is not reaped before `reap`, so the number is still its own."""
        if sys.platform == "win32":
            self._process.send_signal(kind)
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, kind)

    async def reap(self) -> None:
        """Release the process; its number may be reused from here on."""
        await asyncio.to_thread(self._process.wait)
        if self._process.stdin is not None:
            # It may never have received its prompt.
            with contextlib.suppress(OSError, ValueError):
                self._process.stdin.close()

    # Threads.

    def _in_thread(self, target: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, daemon=True, name=f"reviewer-{self.pid}")
        thread.start()
        return thread

    def _tell(self, event: ChildEvent) -> None:
        # The loop is closed if the broker has stopped meanwhile.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def _wait(self, readers: "list[threading.Thread]") -> None:
        code = _exit_code(self._process)
        # Its last output comes first, unless a process it left behind keeps the pipe open.
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        for reader in readers:
            reader.join(max(0.0, deadline - time.monotonic()))
        self._tell(Exited(code))

    def _write(self, prompt: bytes) -> None:
        pipe = self._process.stdin
        if pipe is None:
            return
        with contextlib.suppress(OSError, ValueError), pipe:
            left = memoryview(prompt)
            while left:
                left = left[pipe.write(left) :]

    def _read(self, pipe: "IO[bytes] | None") -> None:
        if pipe is None:
            return
        lines = Lines()
        _widen(pipe.fileno())
        with contextlib.suppress(OSError, ValueError), pipe:
            while chunk := os.read(pipe.fileno(), _CHUNK):
                for start in range(0, len(chunk), _PIECE):
                    self._take(lines, chunk[start : start + _PIECE])
                rest = _READ.owe(len(chunk))
                if rest:
                    time.sleep(rest)
        self._keep(lines.rest(), lines, last=True)

    def _take(self, lines: Lines, piece: bytes) -> None:
        if self._kept.take(len(piece)):
            self._keep(lines.feed(piece), lines)
        else:
            lines.skip(piece)

    def _keep(self, lines: list[bytes], counted: Lines, *, last: bool = False) -> None:
        """Write to the log and pass on. The next lines say how much was left out."""
        dropped = counted.left_out
        if not lines and not (last and dropped):
            return
        counted.left_out = 0
        # Replaced here, before the lines go anywhere: list_reviewers and the pool's page show them too.
        shown = [self._redacted(line) for line in lines]
        notice = [f"[{dropped} bytes were left out]".encode()] if dropped else []
        self._log.write(_readable(b"\n".join([*shown, *notice])) + b"\n")
        if shown:
            self._tell(Output(shown))

    def _redacted(self, line: bytes) -> bytes:
        return line.replace(self._secret, b"[token]") if self._secret else line


def _readable(text: bytes) -> bytes:
    return text.decode("utf-8", "replace").encode("utf-8")


def _widen(descriptor: int) -> None:
    """Use a larger pipe where the system has them: fewer, larger reads leave more time for everything else."""
    if sys.platform == "linux":
        import fcntl  # noqa: PLC0415 - there is none on Windows

        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _CHUNK)


def _popen(argv: Sequence[str], environment: Mapping[str, str], folder: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        list(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environment),
        cwd=folder,
        start_new_session=sys.platform != "win32",
        creationflags=_NEW_GROUP if sys.platform == "win32" else 0,
        bufsize=0,
    )


def _exit_code(process: "subprocess.Popen[bytes]") -> int:
    """Wait without reaping if possible: the number of a zombie, and of its group, cannot be reused."""
    if not hasattr(os, "waitid"):
        return process.wait()
    try:
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        return process.wait()
    if ended is None:
        return process.wait()
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
