"""Plans installations, and carries them out as planned.

A `Planner` reads, and writes nothing. It plans one installation after the other: each sees the files and the receipts
as the plans before it leave them. So several plans can be shown together, and `carry_out` writes them unchanged. If
another program has written a file meanwhile, it plans again.
"""

import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from gsd_review_broker.domain.words import Audience
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.git.discovery import exclude_file
from gsd_review_broker.integrations import files
from gsd_review_broker.integrations.clients.setup import Choice, Client, ClientSetup, Environment, Scope
from gsd_review_broker.integrations.detection import EntryOwner, places_of, receipts_of
from gsd_review_broker.integrations.files import Snapshot
from gsd_review_broker.integrations.receipts import (
    FileChange,
    InstallReceipt,
    InstallReceipts,
    plan_file,
    plan_undoing,
)
from gsd_review_broker.settings.locations import user_file


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
        """Return what the client is connected to: a URL, or a program's words; None if we had installed nothing."""
        if self.choice is not None:
            return self.choice.shown
        return self.before.address if self.before else None

    @property
    def is_change(self) -> bool:
        return any(change.is_change for change in self.changes)


class Planner:
    def __init__(self, around: Environment) -> None:
        self._around = around
        self._receipts = InstallReceipts(around.state)
        # The files as the plans so far will leave them.
        self._planned_files: dict[Path, bytes | None] = {}

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
        changes = [plan_undoing(self._read(Path(record.path), base), record) for record in receipt.files]
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
        self._planned_files.update((change.snapshot.real, change.after) for change in changes)
        self._receipts.plan(client.name, around.base(scope), after if after and after.files else None)
        notes = (*notes, *(f"{change.path}: {change.note}" for change in changes if change.note))
        return ClientPlan(
            client=client, around=around, scope=scope, choice=choice, changes=tuple(changes), notes=notes,
            before=before, after=after,
        )  # fmt: skip

    def _read(self, path: Path, within: Path | None = None) -> Snapshot:
        """Refuse a link out of the project, except for a file of the account that a project's installation has."""
        snapshot = files.read(path, within=within if within and path.is_relative_to(within) else None)
        return replace(snapshot, content=self._planned_files.get(snapshot.real, snapshot.content))

    def _wanted(self, setup: ClientSetup, receipt: InstallReceipt | None, base: Path | None) -> list[FileChange]:
        """Plan the wanted files, and undo those of an earlier installation that are no longer wanted."""
        changes: list[FileChange] = []
        for one in (*setup.documents, *setup.assets):
            record = receipt.record(one.path) if receipt else None
            changes.append(plan_file(one, record, self._read(one.path, base)))
        kept = {str(change.path) for change in changes}
        old = [record for record in receipt.files if record.path not in kept] if receipt else []
        return changes + [plan_undoing(self._read(Path(record.path), base), record) for record in old]

    def _excluding(self, receipt: InstallReceipt) -> list[FileChange]:
        """Write the lines of this receipt and of all others that share its exclude file, unless they are there."""
        if receipt.exclude is None:
            return []
        same = [other for other in self._receipts.beside(receipt) if other.exclude == receipt.exclude]
        wanted = sorted({line for one in (receipt, *same) for line in one.excluded})
        snapshot = self._read(Path(receipt.exclude))
        after = files.with_lines_of_ours(snapshot.content, wanted)
        return [] if after == snapshot.content else [FileChange(snapshot=snapshot, after=after, record=None)]


def around_client(client: Client, around: Environment) -> Environment:
    return around.in_main_work_tree() if client.is_of_broker else around


def without_ours(path: Path, around: Environment) -> bytes | None:
    """Return a project's file without the entries that any client has from us; None if it would not exist."""
    receipts = [receipt for receipt in InstallReceipts(around.state).projects() if receipt.root == str(around.root)]
    records = [record for receipt in receipts for record in receipt.files if record.path == str(path)]
    snapshot = files.read(path, within=around.root if records else None)
    for record in records:
        snapshot = replace(snapshot, content=plan_undoing(snapshot, record).after)
    return snapshot.content


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
    """Record what other installations created, so that the last to be removed takes it away."""
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
    """Say what one broker for all repositories needs. Over `tandem mcp`, each repository has its own."""
    if choice.scope is Scope.PROJECT or choice.url is None:
        return ()
    need = (
        f"That broker takes diffs only for repositories below allowed_roots in {user_file()}, and from proposals that"
    )
    return (f"{need} name their workspace. Without --http, each repository has its own broker, and needs neither.",)


def _elsewhere(client: Client, around: Environment) -> tuple[str, ...]:
    """Say what the user may have meant, if there is nothing to undo."""
    notes: list[str] = []
    for place in places_of(client, around):
        if place.owner is EntryOwner.OURS:
            notes.append(f"{place.path} is ours: tandem uninstall {client} --scope {place.scope}")
        elif place.owner is EntryOwner.FOREIGN:
            notes.append(f"{place.path} has a gsdreview that tandem install did not write here; it is left")
    return tuple(notes)


def _with_excluded(receipt: InstallReceipt, setup: ClientSetup, choice: Choice) -> InstallReceipt:
    """Keep the files that we created out of git, unless they are to be shared. Git treats other files as before."""
    root = Path(receipt.root) if receipt.root else None
    exclude = exclude_file(root) if root else None
    if root is None or exclude is None:
        return receipt
    created = [record.path for record in receipt.files if record.created and Path(record.path).is_relative_to(root)]
    chosen = [path for path in created if not choice.shared or path in setup.personal]
    patterns = tuple(f"/{Path(path).relative_to(root).as_posix()}" for path in chosen)
    return receipt.model_copy(update={"exclude": str(exclude), "excluded": patterns})


# Carry out the plans that were shown, and plan again if another program wrote meanwhile.


_ATTEMPTS = 5
_PROJECT_MODE = 0o644
_USER_MODE = 0o600


def carry_out(plan: ClientPlan) -> ClientPlan:
    """Returns the plan that was carried out: this one, unless another program has written its files since."""
    receipts = InstallReceipts(plan.around.state)
    with receipts.alone():
        for _ in range(_ATTEMPTS):
            try:
                _refuse_outdated(receipts, plan)
                _carry_out(receipts, plan)
            except files.ChangedError:
                plan = _planned_again(plan)
            else:
                return plan
    raise BrokerError(
        Code.BUSY, "another program keeps writing the same files", "Stop it (or let it finish), then try again."
    )


def connected_role(client: str, around: Environment) -> str | None:
    """Return the role in which a client was connected to this project; None if it was not."""
    receipt = InstallReceipts(around.state).read(client, around.project())
    return receipt.role if receipt else None


def kept_choice(client: Client, choice: Choice, around: Environment) -> Choice:
    """Add what an earlier installation in the same role asked for: a plain run removes nothing."""
    around = around_client(client, around)
    receipt = InstallReceipts(around.state).read(client.name, around.base(choice.scope))
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


def repair(client: Client, around: Environment) -> list[ClientPlan]:
    """Install again what the receipts list, with the same choices."""
    done: list[ClientPlan] = []
    for receipt in list(receipts_of(client, around)):
        try:
            done.append(carry_out(Planner(around).install(client, _choice(receipt))))
        except BrokerError as error:
            # What it was installed beside is gone. That is not damage, and `uninstall` still works.
            if error.code is not Code.NOT_FOUND:
                raise
    return done


def _choice(receipt: InstallReceipt) -> Choice:
    """Keep the program of the first time: a hook's PATH is often not that of the user's shell."""
    is_address = receipt.address.startswith(("http://", "https://"))
    return Choice(
        url=receipt.address if is_address else None,
        role=Audience(receipt.role),
        scope=Scope(receipt.scope),
        trust=receipt.trust,
        gate=receipt.gate,
        shared=receipt.shared,
        tandem="tandem" if is_address else shlex.split(receipt.address)[0],
        runtimes=receipt.runtimes,
    )


def _refuse_outdated(receipts: InstallReceipts, plan: ClientPlan) -> None:
    """Check before the receipt is written. What other programs write later is noticed at each file."""
    if receipts.read(plan.client.name, plan.around.base(plan.scope)) != plan.before:
        raise files.ChangedError
    for change in plan.changes:
        if change.is_change:
            files.refuse_changed(change.snapshot)


def _planned_again(plan: ClientPlan) -> ClientPlan:
    planner = Planner(plan.around)
    if plan.choice is None:
        return planner.uninstall(plan.client, plan.scope)
    return planner.install(plan.client, plan.choice)


def _carry_out(receipts: InstallReceipts, plan: ClientPlan) -> None:
    """Write the receipt first, so that everything after it can be undone. A failure undoes what was done."""
    before, after = plan.before, plan.after
    if after is None:
        if before is not None:
            _undo(receipts, before, plan.changes)
        return
    kept = {record.path for record in after.files}
    old = tuple(record for record in before.files if record.path not in kept) if before else ()
    receipts.write(after.model_copy(update={"files": (*after.files, *old)}))
    try:
        for change in plan.changes:
            _write(change, Path(after.root) if after.root else None)
    except BrokerError:
        if before is None:
            _undo(receipts, after, Planner(plan.around).undone(after))
        raise
    if after.files:
        receipts.write(_without_unneeded_folders(after))
    else:
        receipts.remove(after)


def _undo(
    receipts: InstallReceipts, receipt: InstallReceipt, changes: tuple[FileChange, ...] | list[FileChange]
) -> None:
    for change in changes:
        _write(change, Path(receipt.root) if receipt.root else None)
    files.remove_empty([Path(folder) for folder in receipt.folders])
    receipts.remove(receipt)


def _without_unneeded_folders(receipt: InstallReceipt) -> InstallReceipt:
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
