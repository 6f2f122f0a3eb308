"""Install and uninstall: plan, keep a receipt, write; and start again if another program wrote meanwhile."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.git.checkout import find_root
from gsd_review_broker.integrations import files
from gsd_review_broker.integrations.clients.setup import Choice, Client
from gsd_review_broker.integrations.detection import Origin, places_of
from gsd_review_broker.integrations.environment import ClientRole, Environment, Scope
from gsd_review_broker.integrations.planning import FileChange, plan_install, plan_undo
from gsd_review_broker.integrations.receipts import Receipt, Receipts
from gsd_review_broker.settings import config, locations

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
    base = around.base(choice.scope)
    receipts = Receipts(around.state)
    setup = client.setup(choice, around)

    def attempt() -> InstallOutcome:
        receipt = receipts.read(client.name, base)
        changes = plan_install(setup, receipt, within=base)
        if not dry_run:
            _carry_out(receipts, _receipt(client, choice, base, changes, receipt), receipt, changes)
        notes = setup.notes if any(change.is_change for change in changes) else ()
        return InstallOutcome(
            client=client,
            scope=choice.scope,
            address=choice.shown,
            changes=tuple(changes),
            notes=(*notes, *_notes(changes)),
        )

    return attempt() if dry_run else _repeated(receipts, attempt)


def uninstall(client: Client, scope: Scope, around: Environment, *, dry_run: bool = False) -> InstallOutcome:
    base = around.base(scope)
    receipts = Receipts(around.state)

    def attempt() -> InstallOutcome:
        receipt = receipts.read(client.name, base)
        if receipt is None:
            return InstallOutcome(
                client=client, scope=scope, address=None, changes=(), notes=_elsewhere(client, around)
            )
        changes = plan_undo(receipt.files, within=base)
        if not dry_run:
            for change in changes:
                _write(change, base)
            files.remove_empty([Path(folder) for folder in receipt.folders])
            receipts.remove(receipt)
        return InstallOutcome(
            client=client, scope=scope, address=receipt.address, changes=tuple(changes), notes=_notes(changes)
        )

    return attempt() if dry_run else _repeated(receipts, attempt)


def endpoint(role: ClientRole, scope: Scope, around: Environment, given: str | None = None) -> str:
    """Where to connect: as given, else as the configuration of the project's (or the user's) broker says."""
    if given is not None:
        return _checked(given, role)
    root = find_root(around.project()) if scope is Scope.PROJECT else None
    settings = config.load(root=root, flags={}).settings
    if settings.port == 0:
        raise _no_address("the configured port is 0, another at each start")
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    if root is not None:
        _refuse_shared(f"{host}:{settings.port}", root, Receipts(around.state))
    return f"http://{host}:{settings.port}{role.endpoint}"


def _checked(address: str, role: ClientRole) -> str:
    try:
        parts = urlsplit(address)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not address.isprintable() or set(address) & set(" \"'\\<>"):
        raise _no_address(f"{address!r} is not an http address")
    return address if urlsplit(address).path.rstrip("/") else address.rstrip("/") + role.endpoint


def _no_address(why: str) -> BrokerError:
    return BrokerError(Code.INVALID_ARGUMENT, why, "Say where it is, such as --url http://127.0.0.1:8321")


def _refuse_shared(server: str, root: Path, receipts: Receipts) -> None:
    """Two projects on one port: whichever broker is running would get the reviews of both."""
    for other in receipts.projects():
        if urlsplit(other.address).netloc != server or not Path(other.root or "").is_dir():
            continue
        if other.root != str(root) and find_root(Path(other.root or "")) != root:
            raise BrokerError(
                Code.CONFLICT,
                f"{server} is what {other.root} is connected to, and each project has a broker of its own",
                "Use --stdio, which needs no port; or give this project one, such as "
                f'{{"port": {int(server.rpartition(":")[2]) + 1}}} in {locations.project_file(root)}.',
            )


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
        files=tuple(change.record for change in changes if change.record is not None),
        folders=tuple(folders),
    )


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
            _take_back(receipts, receipt)
        raise
    if receipt.files:
        receipts.write(_without_unneeded_folders(receipt))
    else:
        receipts.remove(receipt)


def _take_back(receipts: Receipts, receipt: Receipt) -> None:
    base = Path(receipt.root) if receipt.root else None
    for change in plan_undo(receipt.files, within=base):
        _write(change, base)
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
    files.write(change.snapshot, change.after, new_mode=_PROJECT_MODE if base else _USER_MODE)


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
