"""A reviewer's output in a file of bounded size: a full file replaces the previous one."""

import contextlib
import os
import threading
from pathlib import Path

LARGEST = 2 * 1024 * 1024
_PREVIOUS = ".1"


class LogFile:
    """Written by the threads that read the child's pipes. A full or missing disk costs only the log."""

    def __init__(self, path: Path, *, largest: int = LARGEST) -> None:
        self._path = path
        self._largest = largest
        self._lock = threading.Lock()
        self._size = path.stat().st_size if path.exists() else 0

    def write(self, data: bytes) -> None:
        with self._lock, contextlib.suppress(OSError):
            if self._size + len(data) > self._largest:
                self._path.replace(self._path.with_name(self._path.name + _PREVIOUS))
                self._size = 0
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                self._size += os.write(descriptor, data[-self._largest :])
            finally:
                os.close(descriptor)


def tail(path: Path, characters: int) -> tuple[str, bool]:
    """The end of a log, and whether there is more before it."""
    wanted = characters * 4
    parts: list[bytes] = []
    size = left = 0
    for file in (path, path.with_name(path.name + _PREVIOUS)):
        with contextlib.suppress(OSError), file.open("rb") as opened:
            length = opened.seek(0, os.SEEK_END)
            size += length
            take = max(0, min(length, wanted - left))
            opened.seek(length - take)
            parts.insert(0, opened.read(take))
            left += take
    text = b"".join(parts).decode("utf-8", "replace")
    return text[-characters:], len(text) > characters or size > left
