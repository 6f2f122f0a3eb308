"""Files of a work tree as they are now, to put them back byte for byte."""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class _FileState(NamedTuple):
    mode: int
    content: bytes


class WorkTreeSnapshot:
    """git cannot always take a change back: a filter shows it other content than the file has."""

    def __init__(self, root: Path, paths: Sequence[str]) -> None:
        self._kept = {root / path: _read(root / path) for path in paths}
        self._missing = {
            folder
            for path in self._kept
            for folder in path.parents
            if folder.is_relative_to(root) and not folder.exists()
        }

    def put_back(self) -> bool:
        """False if a file could not be written as it was."""
        with suppress(OSError):
            for path, kept in self._kept.items():
                if _read(path) != kept:
                    _write(path, kept)
            for folder in sorted(self._missing, reverse=True):
                folder.rmdir()
        return all(_read(path) == kept for path, kept in self._kept.items())


def _read(path: Path) -> _FileState | None:
    """None if there is nothing. A folder is kept as a name, whatever is in it: a submodule is not ours to change."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    if stat.S_ISLNK(mode):
        return _FileState(mode, os.fsencode(os.readlink(path)))  # noqa: PTH115 - as it is written
    return _FileState(mode, path.read_bytes() if stat.S_ISREG(mode) else b"")


def _write(path: Path, kept: _FileState | None) -> None:
    path.unlink(missing_ok=True)
    if kept is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISLNK(kept.mode):
        path.symlink_to(os.fsdecode(kept.content))
    else:
        path.write_bytes(kept.content)
        path.chmod(stat.S_IMODE(kept.mode))
