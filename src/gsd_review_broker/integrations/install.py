"""Install and uninstall: plan, keep a receipt, write; and start again if another program wrote meanwhile."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.integrations import excluding, files
from gsd_review_broker.integrations.clients.setup import Choice, Client, ClientSetup
from gsd_review_broker.integrations.detection import Origin, places_of
from gsd_review_broker.integrations.environment import Environment, Scope
from gsd_review_broker.integrations.planning import FileChange, content_without, plan_install, plan_undo
from gsd_review_broker.integrations.receipts import DocumentRecord, Receipt, Receipts
from gsd_review_broker.settings.locations import user_file

_ATTEMPTS = 5
_PROJECT_MODE = 0o644
_USER_MODE = 0o600
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class InstallOutcome:
    """What was done, or with a dry run what would be."""

    client: Client
    scope: Scope
    address: str | None
    """What the client is connected to: a URL, or a program's words; None if nothing of ours was there."""
    changes: tuple[FileChange, ...]
    notes: tuple[str, ...]

    @property
    def is_change(self) -> bool:
        return any(change.is_change for change in self.changes)


def install(client: Client, choice: Choice, around: Environment, *, dry_run: bool = False) -> InstallOutcome:
    around = _around(client, around)
    base = around.base(choice.scope)
    receipts = Receipts(around.state)
    setup = client.setup(choice, around)

    def attempt() -> InstallOutcome:
        receipt = receipts.read(client.name, base)
        changes = plan_install(setup, receipt, within=base)
        new = _receipt(client, choice, base, changes, receipt)
        new = _with_excluded(_with_shared(new, receipts.beside(new)), setup, choice)
        # First of all, so that git never sees a file that is to be kept out.
        changes = [*excluding.plan(new, receipts.projects()), *changes]
        if not dry_run:
            _carry_out(receipts, new, receipt, changes)
        notes = (*setup.notes, *_needs(choice)) if any(change.is_change for change in changes) else ()
        return InstallOutcome(
            client=client,
            scope=choice.scope,
            address=choice.shown,
            changes=tuple(changes),
            notes=(*notes, *_notes(changes)),
        )

    return attempt() if dry_run else _repeated(receipts, attempt)


def uninstall(client: Client, scope: Scope, around: Environment, *, dry_run: bool = False) -> InstallOutcome:
    around = _around(client, around)
    base = around.base(scope)
    receipts = Receipts(around.state)

    def attempt() -> InstallOutcome:
        receipt = receipts.read(client.name, base)
        if receipt is None:
            return InstallOutcome(
                client=client, scope=scope, address=None, changes=(), notes=_elsewhere(client, around)
            )
        changes = _planned_undo(receipts, receipt)
        if not dry_run:
            _undo(receipts, receipt, changes)
        return InstallOutcome(
            client=client, scope=scope, address=receipt.address, changes=tuple(changes), notes=_notes(changes)
        )

    return attempt() if dry_run else _repeated(receipts, attempt)


def connected_role(client: str, around: Environment) -> str | None:
    """The role in which `install` connected a client to this project; None if it did not."""
    receipt = Receipts(around.state).read(client, around.project())
    return receipt.role if receipt else None


def kept_choice(client: Client, choice: Choice, around: Environment) -> Choice:
    """With what an earlier installation in the same role was asked for: a plain run takes nothing away."""
    around = _around(client, around)
    receipt = Receipts(around.state).read(client.name, around.base(choice.scope))
    if receipt is None or receipt.role != choice.role.value:
        return choice
    address = receipt.address if receipt.address.startswith(("http://", "https://")) else choice.url
    return replace(
        choice,
        url=address,
        trust=choice.trust or receipt.trust,
        gate=choice.gate or receipt.gate,
        shared=choice.shared or receipt.shared,
        runtimes=choice.runtimes or receipt.runtimes,
    )


def _around(client: Client, around: Environment) -> Environment:
    return around.in_main_work_tree() if client.is_of_broker else around


def without_ours(path: Path, around: Environment) -> bytes | None:
    """A project's file as it would be without our entries; None if it would not be there."""
    receipts = [receipt for receipt in Receipts(around.state).projects() if receipt.root == str(around.root)]
    records = [record for receipt in receipts for record in receipt.files if record.path == str(path)]
    return content_without(files.read(path, within=around.root if records else None), records)


def _repeated(receipts: Receipts, attempt: Callable[[], Result]) -> Result:
    with receipts.alone():
        for _ in range(_ATTEMPTS):
            try:
                return attempt()
            except files.ChangedError:
                continue
    raise BrokerError(
        Code.BUSY, "another program keeps writing the same files", "Stop it (or let it finish), then try again."
    )


def _receipt(
    client: Client, choice: Choice, base: Path | None, changes: list[FileChange], before: Receipt | None
) -> Receipt:
    folders = list(before.folders) if before else []
    for change in changes:
        if change.after is not None:
            folders += [name for f in files.missing_folders(change.path) if (name := str(f)) not in folders]
    return Receipt(
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


def _with_shared(receipt: Receipt, others: list[Receipt]) -> Receipt:
    """What another installation of ours created is gone with the last of us, in whichever order we leave."""
    created = {record.path for other in others for record in other.files if record.is_new}
    made = {folder for other in others for folder in other.folders}
    used = {str(parent) for record in receipt.files for parent in Path(os.path.realpath(record.path)).parents}
    files_kept = tuple(
        record.model_copy(update={"created": True})
        if isinstance(record, DocumentRecord) and record.path in created
        else record
        for record in receipt.files
    )
    folders = sorted({*receipt.folders, *(made & used)}, key=lambda name: (len(Path(name).parts), name))
    return receipt.model_copy(update={"files": files_kept, "folders": tuple(folders)})


def _needs(choice: Choice) -> tuple[str, ...]:
    """What one broker for all repositories needs. Over `tandem mcp`, each repository has its own."""
    if choice.scope is Scope.PROJECT or choice.url is None:
        return ()
    need = (
        f"That broker takes diffs only for repositories below allowed_roots in {user_file()}, and from proposals that"
    )
    return (f"{need} name their workspace. Without --http, each repository has its own broker, and needs neither.",)


def _with_excluded(receipt: Receipt, setup: ClientSetup, choice: Choice) -> Receipt:
    """The files that we created are kept out of git, unless they are to be shared. A file that was there stays as
    visible as it was."""
    root = Path(receipt.root) if receipt.root else None
    exclude = excluding.place(root)
    if root is None or exclude is None:
        return receipt
    created = [record.path for record in receipt.files if record.is_new and Path(record.path).is_relative_to(root)]
    chosen = [path for path in created if not choice.shared or path in setup.personal]
    patterns = tuple(excluding.pattern(Path(path), root) for path in chosen)
    return receipt.model_copy(update={"exclude": str(exclude), "excluded": patterns})


def _carry_out(receipts: Receipts, receipt: Receipt, before: Receipt | None, changes: list[FileChange]) -> None:
    """The receipt is written first, so that everything after it can be undone. A failure undoes what was done."""
    kept = {record.path for record in receipt.files}
    old = tuple(record for record in before.files if record.path not in kept) if before else ()
    receipts.write(receipt.model_copy(update={"files": (*receipt.files, *old)}))
    try:
        for change in changes:
            _write(change, Path(receipt.root) if receipt.root else None)
    except BrokerError:
        if before is None:
            _undo(receipts, receipt, _planned_undo(receipts, receipt))
        raise
    if receipt.files:
        receipts.write(_without_unneeded_folders(receipt))
    else:
        receipts.remove(receipt)


def _planned_undo(receipts: Receipts, receipt: Receipt) -> list[FileChange]:
    undone = plan_undo(receipt.files, within=Path(receipt.root) if receipt.root else None)
    return [*undone, *excluding.plan(receipt.model_copy(update={"excluded": ()}), receipts.projects())]


def _undo(receipts: Receipts, receipt: Receipt, changes: list[FileChange]) -> None:
    for change in changes:
        _write(change, Path(receipt.root) if receipt.root else None)
    files.remove_empty([Path(folder) for folder in receipt.folders])
    receipts.remove(receipt)


def _without_unneeded_folders(receipt: Receipt) -> Receipt:
    """After a change of role some folders are empty; they are removed and need not be recorded."""
    needed = {str(parent) for record in receipt.files for parent in Path(os.path.realpath(record.path)).parents}
    unneeded = [Path(folder) for folder in receipt.folders if folder not in needed]
    gone = {str(folder) for folder in files.remove_empty(unneeded)}
    return receipt.model_copy(update={"folders": tuple(folder for folder in receipt.folders if folder not in gone)})


def _write(change: FileChange, base: Path | None) -> None:
    if not change.is_change:
        return
    if change.after is None:
        files.remove(change.snapshot)
        return
    files.make_folders(files.missing_folders(change.path))
    is_of_project = base is not None and change.path.is_relative_to(base)
    files.write(change.snapshot, change.after, new_mode=_PROJECT_MODE if is_of_project else _USER_MODE)


def _elsewhere(client: Client, around: Environment) -> tuple[str, ...]:
    """What the user may have meant, if there is nothing to undo."""
    notes: list[str] = []
    for place in places_of(client, around):
        if place.origin is Origin.OURS:
            notes.append(f"{place.path} is ours: tandem uninstall {client} --scope {place.scope}")
        elif place.origin is Origin.FOREIGN:
            notes.append(f"{place.path} has a gsdreview that tandem install did not write here; it is left")
    return tuple(notes)


def _notes(changes: list[FileChange]) -> tuple[str, ...]:
    return tuple(f"{change.path}: {change.note}" for change in changes if change.note)
