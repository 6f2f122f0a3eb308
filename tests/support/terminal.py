"""A real terminal: a program behind a pseudo-terminal, and the screen as an emulator shows it."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pyte

from tests.support.tandem import interruptible
from tests.support.waiting import PATIENCE


class Terminal:
    def __init__(self, command: list[str], *, folder: Path, environment: dict[str, str], size: tuple[int, int]) -> None:
        columns, lines = size
        self.screen = pyte.HistoryScreen(columns, lines, history=5_000)
        self._stream = pyte.ByteStream(self.screen)
        self._main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.modes_before = termios.tcgetattr(other)
        kept = {k: v for k, v in environment.items() if k not in {"COLUMNS", "LINES"}}
        self.process = subprocess.Popen(
            command, cwd=folder, env={**kept, "TERM": "xterm-256color"}, stdin=other, stdout=other, stderr=other,
            start_new_session=True, preexec_fn=interruptible,  # noqa: PLW1509
        )  # fmt: skip
        self._other = other
        self.received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._main)
        os.close(self._other)

    @property
    def text(self) -> str:
        """The visible text, without the empty end of each line."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    @property
    def everything(self) -> str:
        """Includes what has scrolled away."""
        above = ["".join(line[x].data for x in range(self.screen.columns)) for line in self.screen.history.top]
        return "\n".join(line.rstrip() for line in [*above, *self.screen.display]).rstrip()

    def until(self, seen: Callable[[], bool], deadline: float = PATIENCE) -> None:
        """Reads until it appears."""
        end = time.monotonic() + deadline
        while not seen():
            assert time.monotonic() < end, f"not seen; the screen shows:\n{self.text}"
            self._read(0.2)

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def end(self, deadline: float = PATIENCE) -> int:
        self.until(lambda: self.process.poll() is not None, deadline)
        while self._read(0.1):
            pass
        return self.process.wait()

    @property
    def modes(self) -> list[Any]:
        return termios.tcgetattr(self._other)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._main], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self._main, 65536)
        except OSError:
            return False
        self.received += data
        self._stream.feed(data)
        return bool(data)
