"""Records what was done to a client's files, so that it can be undone: one small file for each client and place.

A receipt keeps what each file said before us. It is written before the files are, and knows every content that we may
have written. After a process was killed halfway, `uninstall` can still undo everything.
"""

import difflib
import hashlib
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.files import locked, make_private_folder
from gsd_review_broker.integrations import files
from gsd_review_broker.integrations.clients.setup import ClientFile
from gsd_review_broker.integrations.files import Snapshot, text_of
from gsd_review_broker.integrations.formats import (
    MISSING,
    ConfigEntry,
    Format,
    InvalidConfigError,
    Language,
    PlacedEntry,
    UnfitError,
    applied,
    refused,
)
from gsd_review_broker.integrations.formats.json_format import JsonFormat
from gsd_review_broker.integrations.formats.toml_format import TomlFormat

FORMATS: dict[Language, Format] = {"json": JsonFormat(), "toml": TomlFormat()}


class FileRecord(BaseModel):
    """One file that we wrote: whole, or some entries of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    created: bool
    """One of our installations made the file."""
    former: str | None
    """What it said before us; None if there was no such file."""
    digests: tuple[str, ...]
    """Of the contents that we wrote. From each of them, `former` is the way back."""
    format: Language | None = None
    """None: the whole file is ours."""
    start: str = ""
    """What it began with, if we made it."""
    entries: tuple[ConfigEntry, ...] = ()

    def placed(self) -> list[PlacedEntry]:
        """Return how each entry was put into the former content."""
        form = FORMATS[self.format or "json"]
        text = self.start if self.former is None else self.former
        placed: list[PlacedEntry] = []
        for entry in self.entries:
            placed.append(form.put(text, entry))
            text = applied(text, placed[-1].edits)
        return placed


class InstallReceipt(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[2] = 2
    client: str
    scope: Literal["project", "user"]
    root: str | None
    address: str
    role: str
    files: tuple[FileRecord, ...] = ()
    folders: tuple[str, ...] = ()
    exclude: str | None = None
    """The repository's exclude file, in which the files that we created are listed."""
    excluded: tuple[str, ...] = ()
    shared: bool = False
    """The other files are to be committed."""
    trust: bool = False
    gate: bool = False
    runtimes: tuple[str, ...] = ()

    def record(self, path: Path) -> FileRecord | None:
        return next((record for record in self.files if record.path == str(path)), None)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class InstallReceipts:
    """The receipts on disk, or as planned installations will leave them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._planned: dict[Path, InstallReceipt | None] = {}

    def path(self, client: str, root: Path | None) -> Path:
        if root is None:
            return self._folder / f"{client}-user.json"
        return self._folder / f"{client}-project-{digest(os.fsencode(root))[:16]}.json"

    def plan(self, client: str, root: Path | None, receipt: InstallReceipt | None) -> None:
        self._planned[self.path(client, root)] = receipt

    def read(self, client: str, root: Path | None) -> InstallReceipt | None:
        return self._read(self.path(client, root))

    def projects(self) -> list[InstallReceipt]:
        """Return the receipts of every project; unreadable ones are skipped."""
        return [receipt for receipt in self._every() if receipt.root is not None]

    def beside(self, receipt: InstallReceipt) -> list[InstallReceipt]:
        """Return all other receipts, of which some may name the same files; unreadable ones are skipped."""
        own = receipt.root, receipt.client
        return [other for other in self._every() if (other.root, other.client) != own]

    def _every(self) -> list[InstallReceipt]:
        receipts: list[InstallReceipt] = []
        for path in sorted({*self._folder.glob("*.json"), *self._planned}):
            with suppress(BrokerError):
                receipt = self._read(path)
                receipts += [receipt] if receipt else []
        return receipts

    def _read(self, path: Path) -> InstallReceipt | None:
        if path in self._planned:
            return self._planned[path]
        content = files.read(path).content
        if content is None:
            return None
        try:
            return InstallReceipt.model_validate_json(content)
        except ValidationError as error:
            raise BrokerError(
                Code.CONFLICT,
                f"the receipt {path} is damaged or of another version",
                "Run `tandem uninstall` of the version that wrote it. Or move it away, and remove our entries by hand: "
                "tandem then leaves the files that it lists alone.",
            ) from error

    def write(self, receipt: InstallReceipt) -> None:
        content = receipt.model_dump_json(indent=1).encode()
        snapshot = files.read(self._path_of(receipt))
        if snapshot.content != content:
            files.write(snapshot, content, new_mode=0o600)

    def remove(self, receipt: InstallReceipt) -> None:
        self._path_of(receipt).unlink(missing_ok=True)

    def _path_of(self, receipt: InstallReceipt) -> Path:
        return self.path(receipt.client, Path(receipt.root) if receipt.root is not None else None)

    @contextmanager
    def alone(self) -> Generator[None]:
        """Hold the lock for one installation at a time on this account."""
        with ExitStack() as stack:
            with files.explained(self._folder):
                make_private_folder(self._folder)
                stack.enter_context(locked(self._folder / "lock"))
            yield


@dataclass(frozen=True, kw_only=True, slots=True)
class FileChange:
    """One file: its content now, its new content, and how to undo the change."""

    snapshot: Snapshot
    after: bytes | None
    record: FileRecord | None
    note: str | None = None

    @property
    def path(self) -> Path:
        return self.snapshot.path

    @property
    def is_change(self) -> bool:
        return self.after != self.snapshot.content

    @property
    def action(self) -> str:
        if not self.is_change:
            return "unchanged"
        if self.after is None:
            return "removed"
        return "created" if self.snapshot.content is None else "changed"

    def difference(self) -> str:
        """Return a unified diff; empty if nothing changes."""
        name = str(self.path)
        before, after = (_lines(content) for content in (self.snapshot.content, self.after))
        lines = difflib.unified_diff(
            before,
            after,
            "/dev/null" if self.snapshot.content is None else name,
            "/dev/null" if self.after is None else name,
        )
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(content: bytes | None) -> list[str]:
    # Split at line feeds only, so that a carriage return is visible.
    text = (content or b"").decode("utf-8", "replace")
    return [line + "\n" for line in text.split("\n")[:-1]] + ([last] if (last := text.rpartition("\n")[2]) else [])


def plan_file(file: ClientFile, record: FileRecord | None, snapshot: Snapshot) -> FileChange:
    if file.text is None:
        return _plan_document(file, record, snapshot)
    return _plan_asset(file.path, file.text.encode(), record, snapshot)


def _plan_document(document: ClientFile, record: FileRecord | None, snapshot: Snapshot) -> FileChange:
    form = FORMATS[document.format]
    try:
        current = document.start if snapshot.content is None else text_of(snapshot)
        if _is_installed(form, current, document, record):
            return FileChange(snapshot=snapshot, after=snapshot.content, record=record)
        base = _without_entries(form, current, record) if record else current
        text, placed = _with_entries(form, base, document)
    except InvalidConfigError as error:
        raise refused(document.path, f"cannot be read: {error}", "Fix the file, then install again.") from error
    except UnfitError as error:
        raise refused(document.path, str(error), "Put the entry there by hand (see docs/clients.md).") from error
    if not placed:
        return (
            plan_undoing(snapshot, record)
            if record
            else FileChange(snapshot=snapshot, after=snapshot.content, record=None)
        )
    after = text.encode()
    # The present content stays recorded until the new one is written: this process may be killed before.
    present = _digest_of(snapshot, record)
    return FileChange(
        snapshot=snapshot,
        after=after,
        record=FileRecord(
            path=str(document.path),
            created=snapshot.content is None or (record is not None and record.created),
            former=None if snapshot.content is None or (present and record and record.former is None) else base,
            digests=tuple(dict.fromkeys((*present, digest(after)))),
            format=document.format,
            start=document.start,
            entries=tuple(placed),
        ),
    )


def _digest_of(snapshot: Snapshot, record: FileRecord | None) -> tuple[str, ...]:
    """Return the digest of the present content, if we wrote it."""
    now = digest(snapshot.content or b"")
    return (now,) if record is not None and now in record.digests else ()


def _is_installed(form: Format, text: str, document: ClientFile, record: FileRecord | None) -> bool:
    if record is not None and not all(entry in document.entries for entry in record.entries):
        return False
    return all(not form.put(text, entry).edits for entry in document.entries)


def _with_entries(form: Format, text: str, document: ClientFile) -> tuple[str, list[ConfigEntry]]:
    """Return the new content, parsed again as a client would do, and the entries that were not there."""
    placed: list[ConfigEntry] = []
    for entry in document.entries:
        edits = form.put(text, entry).edits
        placed += [entry] if edits else []
        text = applied(text, edits)
    form.check(text)
    for entry in placed:
        if form.put(text, entry).edits:
            raise UnfitError(f"{'.'.join(entry.path)} cannot be set")
    return text, placed


def _plan_asset(path: Path, after: bytes, record: FileRecord | None, snapshot: Snapshot) -> FileChange:
    now = snapshot.content
    if now == after:
        return FileChange(snapshot=snapshot, after=now, record=record)
    if record is not None:
        if now is not None and digest(now) not in record.digests:
            return FileChange(snapshot=snapshot, after=now, record=record, note="you have changed it, so it is kept")
        digests = tuple({digest(now or b""): None, digest(after): None})
        return FileChange(snapshot=snapshot, after=after, record=record.model_copy(update={"digests": digests}))
    former = text_of(snapshot) if now is not None else None
    record = FileRecord(path=str(path), created=now is None, former=former, digests=(digest(after),))
    return FileChange(snapshot=snapshot, after=after, record=record)


def plan_undoing(snapshot: Snapshot, record: FileRecord) -> FileChange:
    if record.format is not None:
        return _plan_document_undone(FORMATS[record.format], snapshot, record)
    now = snapshot.content
    former = record.former.encode() if record.former is not None else None
    if now is None or digest(now) in record.digests:
        return FileChange(snapshot=snapshot, after=former, record=None)
    note = None if now == former else "you have changed it, so it is kept"
    return FileChange(snapshot=snapshot, after=now, record=None, note=note)


def _plan_document_undone(form: Format, snapshot: Snapshot, record: FileRecord) -> FileChange:
    if snapshot.content is None:
        return FileChange(snapshot=snapshot, after=None, record=None)
    try:
        before = text_of(snapshot)
        text = _without_entries(form, before, record)
        if text == before:
            note = _left(form, before, record)
            return FileChange(snapshot=snapshot, after=snapshot.content, record=None, note=note)
    except (InvalidConfigError, UnfitError) as error:
        raise refused(record.path, str(error), "Remove our entry by hand, or fix the file.") from error
    is_gone = record.created and (form.is_blank(text) or "".join(text.split()) == "".join(record.start.split()))
    return FileChange(snapshot=snapshot, after=None if is_gone else text.encode(), record=None)


def _without_entries(form: Format, text: str, record: FileRecord) -> str:
    """Return the former content if the file is unchanged; otherwise remove our entries from what others made of it."""
    if digest(text.encode()) in record.digests:
        return record.start if record.former is None else record.former
    for placed in reversed(record.placed()):
        text = applied(text, form.take(text, placed))
    form.check(text)
    return text


def _left(form: Format, text: str, record: FileRecord) -> str | None:
    changed = [e for e in record.entries if not e.in_list and form.find(text, e.path) is not MISSING]
    return "the entry was changed since, and is kept" if changed else None
