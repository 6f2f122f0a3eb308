"""Computes what must be written from what is wanted and what exists. It reads, and writes nothing.

A `Planner` plans one installation after the other: each sees the files and the receipts as the plans before it leave
them. So several plans can be shown together, and then carried out unchanged.
"""

import difflib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from gsd_review_broker.git.discovery import exclude_file
from gsd_review_broker.integrations import files
from gsd_review_broker.integrations.clients.setup import (
    Asset,
    Choice,
    Client,
    ClientFile,
    ClientSetup,
    Environment,
    Scope,
)
from gsd_review_broker.integrations.detection import EntryOwner, places_of
from gsd_review_broker.integrations.files import Snapshot, text_of
from gsd_review_broker.integrations.formats import FORMATS
from gsd_review_broker.integrations.formats.entries import (
    ConfigEntry,
    Format,
    InvalidConfigError,
    Missing,
    UnfitError,
    applied,
    refused,
)
from gsd_review_broker.integrations.receipts import FileRecord, InstallReceipt, InstallReceipts, digest
from gsd_review_broker.settings.locations import user_file


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


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientPlan:
    """What installing or uninstalling one client changes. It is shown, and then carried out unchanged."""

    client: Client
    around: Environment
    scope: Scope
    choice: Choice | None
    """None: it is uninstalled."""
    changes: tuple[FileChange, ...] = ()
    notes: tuple[str, ...] = ()
    before: InstallReceipt | None = None
    after: InstallReceipt | None = None

    @property
    def address(self) -> str | None:
        """What the client is connected to: a URL, or a program's words; None if nothing of ours was there."""
        if self.choice is not None:
            return self.choice.shown
        return self.before.address if self.before else None

    @property
    def is_change(self) -> bool:
        return any(change.is_change for change in self.changes)


@dataclass(frozen=True, slots=True)
class _PlannedFiles:
    """The files as the plans so far will leave them."""

    after: dict[Path, bytes | None] = field(default_factory=dict[Path, bytes | None])

    def read(self, path: Path, within: Path | None = None) -> Snapshot:
        """A project's installation may have a file of the account, too; no link in the project leads there."""
        snapshot = files.read(path, within=within if within and path.is_relative_to(within) else None)
        return replace(snapshot, content=self.after.get(snapshot.real, snapshot.content))

    def expect(self, changes: Iterable[FileChange]) -> None:
        self.after.update((change.snapshot.real, change.after) for change in changes)


class Planner:
    def __init__(self, around: Environment) -> None:
        self._around = around
        self._receipts = InstallReceipts(around.state)
        self._files = _PlannedFiles()

    def install(self, client: Client, choice: Choice) -> ClientPlan:
        around = around_client(client, self._around)
        base = around.base(choice.scope)
        before = self._receipts.read(client.name, base)
        setup = client.setup(choice, around)
        changes = self._wanted(setup, before, base)
        receipt = _receipt(client, choice, base, changes, before)
        receipt = _with_excluded(_with_shared(receipt, self._receipts.beside(receipt)), setup, choice)
        notes = (*setup.notes, *_needs(choice)) if any(change.is_change for change in changes) else ()
        # First of all, so that git never sees a file that is to be kept out.
        changes = [*self._excluding(receipt), *changes]
        return self._planned(client, around, choice.scope, choice, changes, notes, before, receipt)

    def uninstall(self, client: Client, scope: Scope) -> ClientPlan:
        around = around_client(client, self._around)
        before = self._receipts.read(client.name, around.base(scope))
        if before is None:
            return ClientPlan(client=client, around=around, scope=scope, choice=None, notes=_elsewhere(client, around))
        return self._planned(client, around, scope, None, self.undone(before), (), before, None)

    def undone(self, receipt: InstallReceipt) -> list[FileChange]:
        base = Path(receipt.root) if receipt.root else None
        changes = [_undone(self._files.read(Path(record.path), base), record) for record in receipt.files]
        return [*changes, *self._excluding(receipt.model_copy(update={"excluded": ()}))]

    def _planned(
        self,
        client: Client,
        around: Environment,
        scope: Scope,
        choice: Choice | None,
        changes: list[FileChange],
        notes: tuple[str, ...],
        before: InstallReceipt | None,
        after: InstallReceipt | None,
    ) -> ClientPlan:
        self._files.expect(changes)
        self._receipts.plan(client.name, around.base(scope), after if after and after.files else None)
        notes = (*notes, *(f"{change.path}: {change.note}" for change in changes if change.note))
        return ClientPlan(
            client=client, around=around, scope=scope, choice=choice, changes=tuple(changes), notes=notes,
            before=before, after=after,
        )  # fmt: skip

    def _wanted(self, setup: ClientSetup, receipt: InstallReceipt | None, base: Path | None) -> list[FileChange]:
        """Files of an earlier installation that are no longer wanted are undone as well."""
        changes: list[FileChange] = []
        for one in (*setup.documents, *setup.assets):
            record = receipt.record(one.path) if receipt else None
            snapshot = self._files.read(one.path, base)
            changes.append(
                _asset(one, record, snapshot) if isinstance(one, Asset) else _document(one, record, snapshot)
            )
        kept = {str(change.path) for change in changes}
        old = [record for record in receipt.files if record.path not in kept] if receipt else []
        return changes + [_undone(self._files.read(Path(record.path), base), record) for record in old]

    def _excluding(self, receipt: InstallReceipt) -> list[FileChange]:
        """The lines of this receipt and of all others that share its exclude file; nothing if it says so already."""
        if receipt.exclude is None:
            return []
        same = [other for other in self._receipts.beside(receipt) if other.exclude == receipt.exclude]
        wanted = sorted({line for one in (receipt, *same) for line in one.excluded})
        snapshot = self._files.read(Path(receipt.exclude))
        after = files.with_lines_of_ours(snapshot.content, wanted)
        return [] if after == snapshot.content else [FileChange(snapshot=snapshot, after=after, record=None)]


def around_client(client: Client, around: Environment) -> Environment:
    return around.in_main_work_tree() if client.is_of_broker else around


def without_ours(path: Path, around: Environment) -> bytes | None:
    """A project's file as it would be without our entries; None if it would not be there. Several clients may have
    written into it."""
    receipts = [receipt for receipt in InstallReceipts(around.state).projects() if receipt.root == str(around.root)]
    records = [record for receipt in receipts for record in receipt.files if record.path == str(path)]
    snapshot = files.read(path, within=around.root if records else None)
    for record in records:
        snapshot = replace(snapshot, content=_undone(snapshot, record).after)
    return snapshot.content


# Documents: files with entries of ours beside those of others.


def _document(document: ClientFile, record: FileRecord | None, snapshot: Snapshot) -> FileChange:
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
            _undone(snapshot, record) if record else FileChange(snapshot=snapshot, after=snapshot.content, record=None)
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
    """Of the present content, if we wrote it."""
    now = digest(snapshot.content or b"")
    return (now,) if record is not None and now in record.digests else ()


def _is_installed(form: Format, text: str, document: ClientFile, record: FileRecord | None) -> bool:
    if record is not None and not all(entry in document.entries for entry in record.entries):
        return False
    return all(not form.put(text, entry).edits for entry in document.entries)


def _with_entries(form: Format, text: str, document: ClientFile) -> tuple[str, list[ConfigEntry]]:
    """The new content, and the entries that were not there. The content is parsed again, as a client would do."""
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


def _without_entries(form: Format, text: str, record: FileRecord) -> str:
    """Exactly, if the file is as we left it; otherwise our entries are removed from what others made of it."""
    if digest(text.encode()) in record.digests:
        return record.start if record.former is None else record.former
    for placed in reversed(record.placed()):
        text = applied(text, form.take(text, placed))
    form.check(text)
    return text


def _document_undone(form: Format, snapshot: Snapshot, record: FileRecord) -> FileChange:
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


def _left(form: Format, text: str, record: FileRecord) -> str | None:
    changed = [e for e in record.entries if not e.in_list and not isinstance(form.find(text, e.path), Missing)]
    return "the entry was changed since, and is kept" if changed else None


# Assets: files that are ours as a whole.


def _asset(asset: Asset, record: FileRecord | None, snapshot: Snapshot) -> FileChange:
    now, after = snapshot.content, asset.text.encode()
    if now == after:
        return FileChange(snapshot=snapshot, after=now, record=record)
    if record is not None:
        if now is not None and digest(now) not in record.digests:
            return FileChange(snapshot=snapshot, after=now, record=record, note="you have changed it, so it is kept")
        digests = tuple({digest(now or b""): None, digest(after): None})
        return FileChange(snapshot=snapshot, after=after, record=record.model_copy(update={"digests": digests}))
    former = text_of(snapshot) if now is not None else None
    record = FileRecord(path=str(asset.path), created=now is None, former=former, digests=(digest(after),))
    return FileChange(snapshot=snapshot, after=after, record=record)


def _undone(snapshot: Snapshot, record: FileRecord) -> FileChange:
    if record.format is not None:
        return _document_undone(FORMATS[record.format], snapshot, record)
    now = snapshot.content
    former = record.former.encode() if record.former is not None else None
    if now is None or digest(now) in record.digests:
        return FileChange(snapshot=snapshot, after=former, record=None)
    note = None if now == former else "you have changed it, so it is kept"
    return FileChange(snapshot=snapshot, after=now, record=None, note=note)


# Receipts.


def _receipt(
    client: Client, choice: Choice, base: Path | None, changes: list[FileChange], before: InstallReceipt | None
) -> InstallReceipt:
    folders = list(before.folders) if before else []
    for change in changes:
        if change.after is not None:
            folders += [name for f in files.missing_folders(change.path) if (name := str(f)) not in folders]
    return InstallReceipt(
        client=client.name,
        scope=choice.scope.value,
        root=str(base) if base else None,
        address=choice.shown,
        role=choice.role.value,
        shared=choice.shared,
        trust=choice.trust,
        gate=choice.gate,
        runtimes=choice.runtimes,
        files=tuple(change.record for change in changes if change.record is not None),
        folders=tuple(folders),
    )


def _with_shared(receipt: InstallReceipt, others: list[InstallReceipt]) -> InstallReceipt:
    """What another installation of ours created is gone with the last of us, in whichever order we leave."""
    created = {record.path for other in others for record in other.files if record.created}
    made = {folder for other in others for folder in other.folders}
    used = {str(parent) for record in receipt.files for parent in Path(os.path.realpath(record.path)).parents}
    kept = tuple(
        record.model_copy(update={"created": True}) if record.format and record.path in created else record
        for record in receipt.files
    )
    folders = sorted({*receipt.folders, *(made & used)}, key=lambda name: (len(Path(name).parts), name))
    return receipt.model_copy(update={"files": kept, "folders": tuple(folders)})


def _needs(choice: Choice) -> tuple[str, ...]:
    """What one broker for all repositories needs. Over `tandem mcp`, each repository has its own."""
    if choice.scope is Scope.PROJECT or choice.url is None:
        return ()
    need = (
        f"That broker takes diffs only for repositories below allowed_roots in {user_file()}, and from proposals that"
    )
    return (f"{need} name their workspace. Without --http, each repository has its own broker, and needs neither.",)


def _elsewhere(client: Client, around: Environment) -> tuple[str, ...]:
    """What the user may have meant, if there is nothing to undo."""
    notes: list[str] = []
    for place in places_of(client, around):
        if place.owner is EntryOwner.OURS:
            notes.append(f"{place.path} is ours: tandem uninstall {client} --scope {place.scope}")
        elif place.owner is EntryOwner.FOREIGN:
            notes.append(f"{place.path} has a gsdreview that tandem install did not write here; it is left")
    return tuple(notes)


def _with_excluded(receipt: InstallReceipt, setup: ClientSetup, choice: Choice) -> InstallReceipt:
    """The files that we created are kept out of git, unless they are to be shared. A file that was there stays as
    visible as it was."""
    root = Path(receipt.root) if receipt.root else None
    exclude = exclude_file(root) if root else None
    if root is None or exclude is None:
        return receipt
    created = [record.path for record in receipt.files if record.created and Path(record.path).is_relative_to(root)]
    chosen = [path for path in created if not choice.shared or path in setup.personal]
    patterns = tuple(f"/{Path(path).relative_to(root).as_posix()}" for path in chosen)
    return receipt.model_copy(update={"exclude": str(exclude), "excluded": patterns})


def _lines(content: bytes | None) -> list[str]:
    # Split at line feeds only, so that a carriage return is visible.
    text = (content or b"").decode("utf-8", "replace")
    return [line + "\n" for line in text.split("\n")[:-1]] + ([last] if (last := text.rpartition("\n")[2]) else [])
