"""Is an installation still whole? And putting back what is missing of it."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gsd_review_broker.domain.words import Audience
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.integrations import files
from gsd_review_broker.integrations.clients.setup import FORMATS, Choice, Client
from gsd_review_broker.integrations.environment import Environment, Scope
from gsd_review_broker.integrations.formats.entries import MISSING, UnfitError, UnreadableError, is_still_ours
from gsd_review_broker.integrations.install import InstallOutcome, install
from gsd_review_broker.integrations.planning import text_of
from gsd_review_broker.integrations.receipts import AssetRecord, DocumentRecord, PlacedRecord, Receipt, Receipts, digest


@dataclass(frozen=True, kw_only=True, slots=True)
class IntegrationState:
    """`damaged`: something that was installed is gone, or is not what was installed."""

    state: Literal["ok", "absent", "damaged"]
    scopes: tuple[Scope, ...] = ()
    problems: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        return {"state": self.state, "scopes": [scope.value for scope in self.scopes], "problems": list(self.problems)}


def state_of(client: Client, around: Environment) -> IntegrationState:
    """In the project and in the account together."""
    try:
        receipts = list(_receipts(client, around))
    except BrokerError as error:
        return IntegrationState(state="damaged", problems=(error.message,))
    problems = [problem for receipt in receipts for problem in _problems(receipt)]
    scopes = tuple(Scope(receipt.scope) for receipt in receipts)
    state = "absent" if not receipts else "damaged" if problems else "ok"
    return IntegrationState(state=state, scopes=scopes, problems=tuple(problems))


def repair(client: Client, around: Environment) -> list[InstallOutcome]:
    """Installs again what was installed, as it was asked for then. Nothing where there is no receipt."""
    outcomes: list[InstallOutcome] = []
    for receipt in list(_receipts(client, around)):
        try:
            outcomes.append(install(client, _choice(receipt), around))
        except BrokerError as error:
            # What it was installed beside is gone. That is not damage, and `uninstall` still works.
            if error.code is not Code.NOT_FOUND:
                raise
    return outcomes


def _receipts(client: Client, around: Environment) -> Iterator[Receipt]:
    bases = [around.root] if around.root else []
    for base in (*bases, None):
        receipt = Receipts(around.state).read(client.name, base)
        if receipt is not None:
            yield receipt


def _choice(receipt: Receipt) -> Choice:
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


def _problems(receipt: Receipt) -> Iterator[str]:
    for record in receipt.files:
        try:
            yield from _of_asset(record) if isinstance(record, AssetRecord) else _of_document(record)
        except (BrokerError, UnreadableError, UnfitError) as error:
            yield f"{record.path}: {error}"


def _of_asset(record: AssetRecord) -> Iterator[str]:
    content = files.read(Path(record.path)).content
    if content is None:
        yield f"{record.path} is missing"
    elif digest(content) not in record.digests:
        yield f"{record.path} was changed; to get ours again, remove it and install again"


def _of_document(record: DocumentRecord) -> Iterator[str]:
    snapshot = files.read(Path(record.path))
    if snapshot.content is None:
        yield f"{record.path} is missing"
        return
    text = text_of(snapshot)
    for entry in record.entries:
        if not _is_there(text, entry, record):
            yield f"{record.path}: our entry in {'.'.join(entry.path)} is missing"


def _is_there(text: str, entry: PlacedRecord, record: DocumentRecord) -> bool:
    form = FORMATS[record.format]
    value = form.find(text, entry.path)
    if value is MISSING:
        return False
    if entry.in_list:
        return isinstance(value, list) and entry.value in value
    # A default that the user has set otherwise is the user's.
    return entry.is_default or is_still_ours(value, entry.value)
