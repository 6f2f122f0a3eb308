"""Folders for an index beside the real one. Each lives for one check; those of killed brokers are removed later."""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

# In memory if possible: a folder lives for a few milliseconds.
PLACE = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir())  # noqa: S108 - folders in it are private
_PREFIX = "tandem-git-"
# Longer than any check takes: it calls git a few times, and each call may take ten minutes at most.
STALE_SECONDS = 24 * 3600


def prefix_of(pid: int) -> str:
    return f"{_PREFIX}{pid}-"


def make_scratch() -> Path:
    return Path(tempfile.mkdtemp(prefix=prefix_of(os.getpid()), dir=PLACE))


def remove_stale(place: Path = PLACE) -> None:
    """By age and owner. A process id proves nothing: containers that share the place have their own numbers."""
    if sys.platform == "win32":
        return
    newest = time.time() - STALE_SECONDS
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and _is_own_folder_before(entry, newest):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_own_folder_before(entry: "os.DirEntry[str]", moment: float) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return entry.is_dir(follow_symlinks=False) and status.st_uid == os.getuid() and status.st_mtime < moment
