"""Which clients are on this machine, which are connected to the broker, and whether an installation is whole."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, cast

from gsd_review_broker.errors import BrokerError
from gsd_review_broker.integrations import files
from gsd_review_broker.integrations.clients import every_client
from gsd_review_broker.integrations.clients.setup import Choice, Client, ClientFile, Environment, Scope
from gsd_review_broker.integrations.files import text_of
from gsd_review_broker.integrations.formats import (
    MISSING,
    ConfigEntry,
    Format,
    InvalidConfigError,
    Language,
    UnfitError,
    is_still_ours,
    refused,
)
from gsd_review_broker.integrations.receipts import FORMATS, FileRecord, InstallReceipt, InstallReceipts, digest

_PATIENCE_SECONDS = 10.0
_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")


class EntryOwner(StrEnum):
    OURS = "ours"
    """`tandem install` put it there, and can take it back."""
    FOREIGN = "foreign"
    ABSENT = "absent"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigFile:
    """One file in which a client looks for MCP servers."""

    scope: Scope
    path: Path
    owner: EntryOwner
    url: str | None = None
    problem: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientStatus:
    client: Client
    program: Path | None
    version: str | None
    places: tuple[ConfigFile, ...]

    @property
    def is_configured(self) -> bool:
        return any(place.url for place in self.places)


def status(around: Environment, *, versions: bool = True) -> list[ClientStatus]:
    """Return the status of every client. Asking the programs for their versions takes a second or two."""
    clients = every_client()
    programs = [shutil.which(client.name, path=around.path) for client in clients]
    with ThreadPoolExecutor(len(programs)) as pool:
        versions_found = list(pool.map(_version, programs)) if versions else [None] * len(programs)
    return [
        ClientStatus(
            client=client,
            program=Path(program) if program else None,
            version=version,
            places=places_of(client, around),
        )
        for client, program, version in zip(clients, programs, versions_found, strict=True)
    ]


def places_of(client: Client, around: Environment) -> tuple[ConfigFile, ...]:
    """Return where a client looks for MCP servers: nothing for one without a server entry."""
    if client.server is None:
        return ()
    scopes = [scope for scope in Scope if scope is Scope.USER or around.root]
    return tuple(
        _place(client, client.server(Choice(url=None, scope=scope), around), scope, around) for scope in scopes
    )


def _version(program: str | None) -> str | None:
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "--version"],
            # Not in the repository: a program may run what it finds in its working folder.
            cwd=Path.home(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(done.stdout)
    return match[0] if match and done.returncode == 0 else None


def _place(client: Client, server: ClientFile, scope: Scope, around: Environment) -> ConfigFile:
    path, keys = server.path, server.entries[0].path
    try:
        value = _entry(server, keys)
        if value is None:
            return ConfigFile(scope=scope, path=path, owner=EntryOwner.ABSENT)
        receipt = InstallReceipts(around.state).read(client.name, around.base(scope))
        record = receipt.record(path) if receipt else None
    except BrokerError as error:
        return ConfigFile(scope=scope, path=path, owner=EntryOwner.UNREADABLE, problem=error.message)
    ours = any(e.path == keys and is_still_ours(value, e.value) for e in (record.entries if record else ()))
    return ConfigFile(
        scope=scope, path=path, owner=EntryOwner.OURS if ours else EntryOwner.FOREIGN, url=_address(value)
    )


def _entry(file: ClientFile, keys: tuple[str, ...]) -> Any:
    snapshot = files.read(file.path)
    if snapshot.content is None:
        return None
    try:
        value = FORMATS[file.format].find(text_of(snapshot), keys)
    except (InvalidConfigError, UnfitError) as error:
        raise refused(file.path, str(error), "Fix the file.") from error
    return None if value is MISSING else value


def _address(value: Any) -> str | None:
    """Return a URL, or the words of a program."""
    entry = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    url = entry.get("url") or entry.get("httpUrl")
    if url:
        return str(url)
    words = [*_words(entry.get("command")), *_words(entry.get("args"))]
    return shlex.join(words) if words else None


def _words(value: Any) -> list[str]:
    return (
        [str(word) for word in cast("list[Any]", value)] if isinstance(value, list) else [str(value)] if value else []
    )


# What was installed.


@dataclass(frozen=True, kw_only=True, slots=True)
class IntegrationState:
    """`damaged`: something that was installed is gone, or is not what was installed."""

    state: Literal["ok", "absent", "damaged"]
    scopes: tuple[Scope, ...] = ()
    problems: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        return {"state": self.state, "scopes": [scope.value for scope in self.scopes], "problems": list(self.problems)}


def state_of(client: Client, around: Environment) -> IntegrationState:
    """Judge the installations in the project and in the account together."""
    try:
        receipts = list(receipts_of(client, around))
    except BrokerError as error:
        return IntegrationState(state="damaged", problems=(error.message,))
    problems = [problem for receipt in receipts for problem in _problems(receipt)]
    scopes = tuple(Scope(receipt.scope) for receipt in receipts)
    state = "absent" if not receipts else "damaged" if problems else "ok"
    return IntegrationState(state=state, scopes=scopes, problems=tuple(problems))


def receipts_of(client: Client, around: Environment) -> Iterator[InstallReceipt]:
    bases = [around.root] if around.root else []
    for base in (*bases, None):
        receipt = InstallReceipts(around.state).read(client.name, base)
        if receipt is not None:
            yield receipt


def _problems(receipt: InstallReceipt) -> Iterator[str]:
    for record in receipt.files:
        try:
            yield from _of_document(record, record.format) if record.format else _of_asset(record)
        except (BrokerError, InvalidConfigError, UnfitError) as error:
            yield f"{record.path}: {error}"


def _of_asset(record: FileRecord) -> Iterator[str]:
    content = files.read(Path(record.path)).content
    if content is None:
        yield f"{record.path} is missing"
    elif digest(content) not in record.digests:
        yield f"{record.path} was changed; to get ours again, remove it and install again"


def _of_document(record: FileRecord, language: Language) -> Iterator[str]:
    snapshot = files.read(Path(record.path))
    if snapshot.content is None:
        yield f"{record.path} is missing"
        return
    text = text_of(snapshot)
    for entry in record.entries:
        if not _is_there(FORMATS[language], text, entry):
            yield f"{record.path}: our entry in {'.'.join(entry.path)} is missing"


def _is_there(form: Format, text: str, entry: ConfigEntry) -> bool:
    value = form.find(text, entry.path)
    if value is MISSING:
        return False
    if entry.in_list:
        return isinstance(value, list) and entry.value in value
    # A default that the user has set otherwise is the user's.
    return entry.is_default or is_still_ours(value, entry.value)
