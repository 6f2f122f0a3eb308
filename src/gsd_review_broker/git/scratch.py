"""Folders for an index beside the real one. Each lives for one check; those of killed brokers are removed later."""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from gsd_review_broker.git.command import alternate

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


@dataclass(frozen=True, slots=True)
class IsolatedRepository:
    folder: Path
    object_format: str
    environment: dict[str, str]

    @property
    def index(self) -> Path:
        return self.folder / "index"


def make_isolated_repository(folder: Path, *, objects: str, object_format: str) -> IsolatedRepository:
    """`objects` is the real repository's object store."""
    repository = make_empty_repository(folder / "git", object_format)
    environment = {
        "GIT_DIR": str(repository),
        "GIT_INDEX_FILE": str(folder / "index"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": alternate(objects),
        # The folder above is not a repository, whatever lies there.
        "GIT_CEILING_DIRECTORIES": os.fspath(folder),
    }
    return IsolatedRepository(folder, object_format, environment)


def make_empty_repository(folder: Path, object_format: str, *, attributes: str = "") -> Path:
    for name in ("refs", "objects", "info"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    if attributes:
        (folder / "info" / "attributes").write_text(attributes)
    is_usual = object_format == "sha1"
    special = "" if is_usual else f"[extensions]\n\tobjectformat = {object_format}\n"
    (folder / "config").write_text(f"[core]\n\trepositoryformatversion = {int(not is_usual)}\n\tbare = true\n{special}")
    return folder
