"""The checks of `tandem doctor` that look at this machine: programs, settings, the database file."""

import contextlib
import importlib.util
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gsd_review_broker import __version__
from gsd_review_broker.client import Target
from gsd_review_broker.client.discovery import described
from gsd_review_broker.domain.words import PROGRAMS
from gsd_review_broker.errors import StartError
from gsd_review_broker.git.program import run_git, text_of
from gsd_review_broker.settings import locations

_LEAST_PYTHON = (3, 11)
_LEAST_GIT = (2, 31)
# Two connections that write or checkpoint at once may corrupt a WAL.
_WAL_BUG = ((3, 7, 0), (3, 51, 2))
_HEADER = b"SQLite format 3\0"
_LITTLE_SPACE = 200 * 1024 * 1024
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "afs", "ceph"}


class CheckState(StrEnum):
    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    state: CheckState
    found: str
    hint: str = ""


def green(name: str, found: str, hint: str = "") -> Check:
    return Check(name, CheckState.GREEN, found, hint)


def yellow(name: str, found: str, hint: str) -> Check:
    return Check(name, CheckState.YELLOW, found, hint)


def red(name: str, found: str, hint: str) -> Check:
    return Check(name, CheckState.RED, found, hint)


def python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _LEAST_PYTHON:
        return red("python", version, "Install Python 3.11 or newer.")
    return green("python", version)


def git() -> Check:
    try:
        version = text_of(run_git(Path.cwd(), "--version", timeout=10).output)
    except (OSError, subprocess.TimeoutExpired) as error:
        return red("git", f"does not run: {error}", "Install git; the broker needs it to check diffs.")
    match = re.search(r"(\d+)\.(\d+)(?:\.\d+)*", version)
    if match is None:
        return yellow("git", version.strip() or "no version", "Is it git?")
    if (int(match[1]), int(match[2])) < _LEAST_GIT:
        return red("git", match[0], "Install git 2.31 or newer.")
    return green("git", match[0])


def sqlite() -> Check:
    version = sqlite3.sqlite_version
    number = tuple(map(int, version.split(".")))
    if _WAL_BUG[0] <= number <= _WAL_BUG[1]:
        return green(
            "sqlite",
            version,
            "3.7.0 to 3.51.2 can corrupt a database that two connections write at once; the broker writes with one. "
            "Open the file with no other program for writing.",
        )
    return green("sqlite", version)


def command() -> Check:
    program = shutil.which("tandem")
    if program is None:
        return yellow("command", "tandem is not on the PATH", "Hooks and agents call it by name: add its folder.")
    return green("command", f"{program} ({__version__})")


def configuration(target: Target, config: str | None) -> Iterator[Check]:
    """Validate the whole configuration, as the broker does at its start."""
    from gsd_review_broker.settings import config as settings

    try:
        loaded = settings.load(root=target.locations.root, flags={"config": config})
    except StartError as error:
        yield red("configuration", str(error), "Fix the file; `tandem config` shows every value.")
        return
    files = sorted({origin for origin in loaded.origins.values() if os.sep in origin})
    yield green("configuration", ", ".join(files) or "defaults")
    for problem in loaded.problems:
        yield yellow(problem.feature, problem.message, problem.fix)


def database(target: Target) -> Iterator[Check]:
    if target.locations.database.url is not None:
        yield _server(target)
        return
    path = target.locations.database.path
    folder = next(parent for parent in path.parents if parent.exists())
    if not os.access(folder, os.W_OK):
        yield red("database", f"{folder} cannot be written", "Change its owner or permissions, or choose --db.")
        return
    if wrong := _foreign(target) or (what_is_wrong(path) if path.exists() else None):
        yield red("database", *wrong)
    elif path.exists():
        size = path.stat().st_size
        readable = stat.S_IMODE(path.stat().st_mode) & 0o077
        if readable and sys.platform != "win32":
            yield yellow("database", f"{path}: other users can read it", f"chmod 600 {path}")
        else:
            yield green("database", f"{path} ({size // 1024} KiB)")
    else:
        yield green("database", f"{path} (created when the broker starts)")
    kind = _file_system(folder)
    if kind in _NETWORK:
        yield yellow("file system", f"{kind}: a network's", "Locks and syncs are not reliable there: choose --db.")
    free = shutil.disk_usage(folder).free
    if free < _LITTLE_SPACE:
        yield yellow(
            "disk",
            f"{free // (1024 * 1024)} MiB are free",
            "Free some space: the broker cannot record anything without it.",
        )


def state_folder() -> Iterator[Check]:
    """Report a problem only. `tandem up` keeps the broker's log, its port and its lock there."""
    path = locations.state_folder()
    folder = next(parent for parent in (path, *path.parents) if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        yield red(
            "state folder",
            f"nothing can be written below {folder}",
            f"The broker needs {path}; XDG_STATE_HOME moves it.",
        )


def _server(target: Target) -> Check:
    if importlib.util.find_spec("asyncpg") is None:
        return red(
            "database", "PostgreSQL needs a package that is not installed", "Install gsd-review-broker[postgres]."
        )
    return green("database", f"{target.locations.database} (the broker connects when it starts)")


def _foreign(target: Target) -> tuple[str, str] | None:
    from gsd_review_broker.settings.config import refuse_tracked

    try:
        refuse_tracked(target.locations.database, target.locations.root)
    except StartError as error:
        return str(error), "The broker does not start with it."
    return None


def _file_system(folder: Path) -> str:
    """Find the longest mount point above the folder; return an empty string without /proc/mounts."""
    try:
        lines = Path("/proc/mounts").read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    mounts = [line.split()[1:3] for line in lines if len(line.split()) > 2]  # noqa: PLR2004 - device, place, kind
    above = [(place, kind) for place, kind in mounts if folder.is_relative_to(place.replace("\\040", " "))]
    return max(above, key=lambda mount: len(mount[0]), default=("", ""))[1]


def reviewers() -> Check:
    installed = [name for name in PROGRAMS if shutil.which(name)]
    if not installed:
        return green(
            "reviewer programs",
            "none found",
            "A person can review; the pool needs one of " + ", ".join(PROGRAMS) + ".",
        )
    return green("reviewer programs", ", ".join(installed))


def repository(target: Target) -> Check:
    if target.locations.root is None:
        return green("repository", "not in a repository: this is the user's broker")
    return green("repository", described(target.locations))


# The database file, looked at without writing and without a broker.


def what_is_wrong(path: Path) -> tuple[str, str] | None:
    """Return the problem and its fix; None for a broker's database, and for an empty file, which the broker fills."""
    another = f"Move it away and put a backup in its place ({path.name}.backup-*), or choose another file with --db."
    if not path.is_file():
        return f"{path} is not a file", another
    try:
        with path.open("rb") as file:
            header = file.read(len(_HEADER))
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}", "Change its owner or permissions, or choose --db."
    if not header:
        return None
    if header != _HEADER:
        return f"{path} is damaged, or is not a database", another
    try:
        _look(path)
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            return None
        return f"{path} is damaged: {error}", f"{another} sqlite3's .recover saves what can be saved."
    except StartError as error:
        return str(error), "It was not changed."
    return None


def _look(path: Path) -> None:
    from gsd_review_broker.store import schema

    # Without a journal no program writes, and reading has to make none.
    is_in_use = path.with_name(f"{path.name}-wal").exists()
    how = "mode=ro" if is_in_use else "mode=ro&immutable=1"
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as connection:
        schema.harden(connection)
        version = schema.stored_version(connection)
        schema.refuse_foreign(connection, version, path)
        schema.refuse_unknown(version, path)
