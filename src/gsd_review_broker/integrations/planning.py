"""Computes what must be written from what is wanted and what exists. It reads, and writes nothing."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from gsd_review_broker.integrations import files
from gsd_review_broker.integrations.clients.setup import FORMATS, Asset, ClientFile, ClientSetup
from gsd_review_broker.integrations.files import Snapshot
from gsd_review_broker.integrations.formats.edits import applied, inverse
from gsd_review_broker.integrations.formats.entries import Format, Missing, Placed, UnfitError, UnreadableError, refused
from gsd_review_broker.integrations.receipts import (
    AssetRecord,
    DocumentRecord,
    PlacedRecord,
    Receipt,
    ReceiptStep,
    digest,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileChange:
    """One file: its content now, its new content, and how to undo the change."""

    snapshot: Snapshot
    after: bytes | None
    record: DocumentRecord | AssetRecord | None
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
        """Unified, as `diff` shows it; empty if nothing changes."""
        name = str(self.path)
        before, after = (_lines(content) for content in (self.snapshot.content, self.after))
        lines = difflib.unified_diff(
            before,
            after,
            "/dev/null" if self.snapshot.content is None else name,
            "/dev/null" if self.after is None else name,
        )
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def plan_install(wanted: ClientSetup, receipt: Receipt | None, *, within: Path | None) -> list[FileChange]:
    """Files of an earlier installation that are no longer wanted are undone as well."""
    changes = [_document(document, receipt, _read(document.path, within)) for document in wanted.documents]
    changes += [_asset(asset, receipt, _read(asset.path, within)) for asset in wanted.assets]
    kept = {str(change.path) for change in changes}
    old = [record for record in receipt.files if record.path not in kept] if receipt else []
    return changes + plan_undo(old, within=within)


def plan_undo(records: Iterable[DocumentRecord | AssetRecord], *, within: Path | None) -> list[FileChange]:
    return [_file_undone(_read(Path(record.path), within), record) for record in records]


def _read(path: Path, within: Path | None) -> Snapshot:
    """A project's installation may have a file of the account, too; no link in the project leads there."""
    return files.read(path, within=within if within and path.is_relative_to(within) else None)


def content_without(snapshot: Snapshot, records: Iterable[DocumentRecord | AssetRecord]) -> bytes | None:
    """A file's content if all of these are undone; several clients may have written into it."""
    for record in records:
        snapshot = replace(snapshot, content=_file_undone(snapshot, record).after)
    return snapshot.content


def _file_undone(snapshot: Snapshot, record: DocumentRecord | AssetRecord) -> FileChange:
    if isinstance(record, DocumentRecord):
        return _document_undone(snapshot, record)
    return _asset_undone(snapshot, record)


def _document(document: ClientFile, receipt: Receipt | None, snapshot: Snapshot) -> FileChange:
    record = receipt.document(document.path) if receipt else None
    form = FORMATS[document.format]
    try:
        current = document.start if snapshot.content is None else text_of(snapshot)
        if _is_installed(form, current, document, record):
            return FileChange(snapshot=snapshot, after=snapshot.content, record=record)
        base = _undone(form, current, record) if record else current
        text, placed, steps = _with_entries(form, base, document)
        _check(form, text, placed)
    except UnreadableError as error:
        raise refused(document.path, f"cannot be read: {error}", "Fix the file, then install again.") from error
    except UnfitError as error:
        raise refused(document.path, str(error), "Put the entry there by hand (see docs/clients.md).") from error
    if not placed:
        return _document_undone(snapshot, record) if record else _untouched(snapshot)
    after = text.encode()
    return FileChange(
        snapshot=snapshot,
        after=after,
        record=DocumentRecord(
            path=str(document.path),
            format=document.format,
            created=snapshot.content is None or (record is not None and record.created),
            start=document.start,
            entries=tuple(map(PlacedRecord.of, placed)),
            states={**(_kept_state(record, snapshot)), digest(after): steps},
        ),
    )


def _untouched(snapshot: Snapshot) -> FileChange:
    return FileChange(snapshot=snapshot, after=snapshot.content, record=None)


def _kept_state(record: DocumentRecord | None, snapshot: Snapshot) -> dict[str, tuple[ReceiptStep, ...]]:
    """The present content stays recorded until the new content is written: this process may be killed before."""
    now = digest(snapshot.content or b"")
    return {now: record.states[now]} if record and now in record.states else {}


def _is_installed(form: Format, text: str, document: ClientFile, record: DocumentRecord | None) -> bool:
    if record is not None and not all(placed.entry in document.entries for placed in record.entries):
        return False
    return all(not form.put(text, entry).edits for entry in document.entries)


def _with_entries(form: Format, text: str, document: ClientFile) -> tuple[str, list[Placed], tuple[ReceiptStep, ...]]:
    """One after the other; the steps back are in the order in which they must be taken."""
    placed: list[Placed] = []
    steps: list[ReceiptStep] = []
    for entry in document.entries:
        one = form.put(text, entry)
        if one.edits:
            placed.append(one)
            steps.insert(0, ReceiptStep.of(inverse(text, one.edits)))
            text = applied(text, one.edits)
    return text, placed, tuple(steps)


def _check(form: Format, text: str, placed: list[Placed]) -> None:
    """The new content is parsed again, as a client would do."""
    form.check(text)
    for one in placed:
        if form.put(text, one.entry).edits:
            raise UnfitError(f"{'.'.join(one.entry.path)} cannot be set")


def _document_undone(snapshot: Snapshot, record: DocumentRecord) -> FileChange:
    if snapshot.content is None:
        return FileChange(snapshot=snapshot, after=None, record=None)
    form = FORMATS[record.format]
    try:
        before = text_of(snapshot)
        text = _undone(form, before, record)
        if text == before:
            return FileChange(snapshot=snapshot, after=snapshot.content, record=None, note=_left(form, before, record))
    except (UnreadableError, UnfitError) as error:
        raise refused(record.path, str(error), "Remove our entry by hand, or fix the file.") from error
    is_gone = record.created and (form.is_blank(text) or "".join(text.split()) == "".join(record.start.split()))
    return FileChange(snapshot=snapshot, after=None if is_gone else text.encode(), record=None)


def _undone(form: Format, text: str, record: DocumentRecord) -> str:
    """Exactly, if the file is as we left it; otherwise our entries are removed from what others made of it."""
    steps = record.states.get(digest(text.encode()))
    if steps is not None:
        for step in steps:
            text = applied(text, step.as_edits())
        return text
    for entry in reversed(record.entries):
        text = applied(text, form.take(text, entry.placed))
    form.check(text)
    return text


def _left(form: Format, text: str, record: DocumentRecord) -> str | None:
    changed = [e for e in record.entries if not e.in_list and not isinstance(form.find(text, e.path), Missing)]
    return "the entry was changed since, and is kept" if changed else None


def _asset(asset: Asset, receipt: Receipt | None, snapshot: Snapshot) -> FileChange:
    record = receipt.asset(asset.path) if receipt else None
    after = asset.text.encode()
    now = snapshot.content
    if now == after:
        return FileChange(snapshot=snapshot, after=now, record=record)
    if record is not None:
        if now is not None and digest(now) not in record.digests:
            return FileChange(snapshot=snapshot, after=now, record=record, note="you have changed it, so it is kept")
        digests = tuple({digest(now or b""): None, digest(after): None})
        return FileChange(snapshot=snapshot, after=after, record=record.model_copy(update={"digests": digests}))
    prior = text_of(snapshot) if now is not None else None
    record = AssetRecord(path=str(asset.path), digests=(digest(after),), prior=prior)
    return FileChange(snapshot=snapshot, after=after, record=record)


def _asset_undone(snapshot: Snapshot, record: AssetRecord) -> FileChange:
    now = snapshot.content
    if now is None or digest(now) in record.digests:
        prior = record.prior.encode() if record.prior is not None else None
        return FileChange(snapshot=snapshot, after=prior, record=None)
    untouched = record.prior is not None and now == record.prior.encode()
    note = None if untouched else "you have changed it, so it is kept"
    return FileChange(snapshot=snapshot, after=now, record=None, note=note)


def text_of(snapshot: Snapshot) -> str:
    try:
        return (snapshot.content or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise refused(snapshot.path, "is not UTF-8", "Store it as UTF-8, then install again.") from error


def _lines(content: bytes | None) -> list[str]:
    # Split at line feeds only, so that a carriage return is visible.
    text = (content or b"").decode("utf-8", "replace")
    return [line + "\n" for line in text.split("\n")[:-1]] + ([last] if (last := text.rpartition("\n")[2]) else [])
