"""Carries out the plans that were shown: keep a receipt, write; and plan again if another program wrote meanwhile."""

import os
import shlex
from dataclasses import replace
from pathlib import Path

from gsd_review_broker.domain.words import Audience
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.integrations import files
from gsd_review_broker.integrations.clients.setup import Choice, Client, Environment, Scope
from gsd_review_broker.integrations.detection import receipts_of
from gsd_review_broker.integrations.planning import ClientPlan, FileChange, Planner, around_client
from gsd_review_broker.integrations.receipts import InstallReceipt, InstallReceipts

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
    """The role in which a client was connected to this project; None if it was not."""
    receipt = InstallReceipts(around.state).read(client, around.project())
    return receipt.role if receipt else None


def kept_choice(client: Client, choice: Choice, around: Environment) -> Choice:
    """With what an earlier installation in the same role was asked for: a plain run takes nothing away."""
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
    """Installs again what was installed, as it was asked for then. Nothing where there is no receipt."""
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
    """With the program of the first time: a hook's PATH is often not that of the user's shell."""
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
    """Before the receipt is written. What other programs write after this is found out file by file."""
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
    """The receipt is written first, so that everything after it can be undone. A failure undoes what was done."""
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
