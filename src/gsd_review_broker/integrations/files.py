"""A file that others write too: read once, replaced completely or not at all, and never over a newer version."""

import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.integrations.formats import refused

_BEGIN = "# These files were written by `tandem install`; `tandem uninstall` removes the lines."
_BEGIN_OF_OURS = f"{_BEGIN} (And this file.)"
_END = "# End of the lines by `tandem install`."
_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class ChangedError(Exception):
    """Another process wrote the file after we had read it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    path: Path
    """As it was asked for."""
    real: Path
    """Where it is: links are followed, so that a link stays one."""
    content: bytes | None
    status: os.stat_result | None


def read(path: Path, *, within: Path | None = None) -> Snapshot:
    """Refuse a link that leads out of `within`: a cloned repository must not choose what is written outside."""
    with explained(path):
        real = Path(os.path.realpath(path))
        if within is not None and not real.is_relative_to(os.path.realpath(within)):
            raise refused(path, f"leads out of {within}, to {real}", "Replace the link, or use --scope user.")
        try:
            status = real.stat()
        except FileNotFoundError:
            return Snapshot(path=path, real=real, content=None, status=None)
        except NotADirectoryError:
            raise refused(path, "is below something that is not a folder", "Move that away.") from None
        if not stat.S_ISREG(status.st_mode):
            raise refused(path, "is not a regular file", "Move it away.")
        return Snapshot(path=path, real=real, content=real.read_bytes(), status=status)


def text_of(snapshot: Snapshot) -> str:
    try:
        return (snapshot.content or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise refused(snapshot.path, "is not UTF-8", "Store it as UTF-8, then install again.") from error


def write(snapshot: Snapshot, content: bytes, *, new_mode: int) -> None:
    """Writes the whole file to the disk, with the mode that it had. Raises ChangedError if it has changed since."""
    _refuse_read_only(snapshot)
    with explained(snapshot.path):
        draft = snapshot.real.with_name(f".{snapshot.real.name}.{secrets.token_hex(6)}")
        mode = stat.S_IMODE(snapshot.status.st_mode) if snapshot.status else new_mode
        try:
            _write_draft(draft, content, mode, snapshot.status)
            if snapshot.content is None:
                _put_new(draft, snapshot.real)
            else:
                refuse_changed(snapshot)
                draft.replace(snapshot.real)
        finally:
            draft.unlink(missing_ok=True)
        _sync_folder(snapshot.real.parent)


def remove(snapshot: Snapshot) -> None:
    _refuse_read_only(snapshot)
    with explained(snapshot.path):
        refuse_changed(snapshot)
        snapshot.real.unlink(missing_ok=True)
        _sync_folder(snapshot.real.parent)


def refuse_changed(snapshot: Snapshot) -> None:
    """Raises ChangedError if the file has changed since the snapshot."""
    try:
        content = snapshot.real.read_bytes()
    except FileNotFoundError:
        content = None
    if content != snapshot.content:
        raise ChangedError


def missing_folders(path: Path) -> list[Path]:
    """Return the folders that must be made for a file, outermost first."""
    missing: list[Path] = []
    for folder in Path(os.path.realpath(path)).parents:
        if folder.exists():
            break
        missing.insert(0, folder)
    return missing


def make_folders(folders: list[Path]) -> None:
    for folder in folders:
        with explained(folder):
            folder.mkdir(exist_ok=True)


def remove_empty(folders: list[Path]) -> list[Path]:
    """Remove the empty folders, innermost first, and return them."""
    gone: list[Path] = []
    for folder in reversed(folders):
        with suppress(OSError):
            folder.rmdir()
            gone.append(folder)
    return gone


def _write_draft(draft: Path, content: bytes, mode: int, status: os.stat_result | None) -> None:
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - the descriptor carries the mode
        file.write(content)
        file.flush()
        if status is not None and hasattr(os, "fchown"):
            # If root runs this, a user's file stays the user's.
            with suppress(PermissionError):
                os.fchown(descriptor, status.st_uid, status.st_gid)
        draft.chmod(mode)
        os.fsync(descriptor)


def _put_new(draft: Path, real: Path) -> None:
    """Link it, which cannot replace a file that has appeared meanwhile; without hard links, check and rename."""
    try:
        os.link(draft, real)
    except FileExistsError:
        raise ChangedError from None
    except OSError:
        if real.exists():
            raise ChangedError from None
        draft.replace(real)


def _refuse_read_only(snapshot: Snapshot) -> None:
    """Respect the read-only mark, which renaming would bypass, also for root."""
    if snapshot.status is not None and not snapshot.status.st_mode & _WRITABLE:
        raise refused(snapshot.path, "is read-only", f"Allow it with `chmod u+w {snapshot.real}`.")


def _sync_folder(folder: Path) -> None:
    # Windows has no such thing.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def explained(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise BrokerError(
            Code.UNAVAILABLE,
            f"{path}: {error.strerror or error}",
            "Look at the permissions of the file and its folder, and at the space on the disk.",
        ) from error


def with_lines_of_ours(content: bytes | None, lines: list[str]) -> bytes | None:
    """Put these lines into a block at the top of an exclude file of git. So the rest of the file keeps every byte, and
    a later line of the user's overrules ours."""
    before, is_ours, rest = _split(content or b"")
    is_ours = is_ours or content is None
    if not lines:
        return before + rest if before + rest or not is_ours else None
    block = [_BEGIN_OF_OURS if is_ours else _BEGIN, *lines, _END]
    return before + "".join(f"{line}\n" for line in block).encode() + rest


def _split(content: bytes) -> tuple[bytes, bool, bytes]:
    """Return what stands before our block, whether we made the file, and what stands after the block."""
    lines = content.splitlines(keepends=True)
    words = [os.fsdecode(line).rstrip("\r\n") for line in lines]
    begin = next((at for at, word in enumerate(words) if word in {_BEGIN, _BEGIN_OF_OURS}), None)
    if begin is None or _END not in words[begin:]:
        return b"", False, content
    end = words.index(_END, begin)
    return b"".join(lines[:begin]), words[begin] == _BEGIN_OF_OURS, b"".join(lines[end + 1 :])
