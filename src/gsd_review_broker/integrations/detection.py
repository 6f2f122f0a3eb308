"""Which clients are installed, and which of them are connected to the broker."""

import re
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from gsd_review_broker.errors import BrokerError
from gsd_review_broker.integrations import files
from gsd_review_broker.integrations.clients import every_client
from gsd_review_broker.integrations.clients.setup import FORMATS, Client, ServerEntry
from gsd_review_broker.integrations.environment import Environment, Scope
from gsd_review_broker.integrations.formats.entries import MISSING, UnfitError, UnreadableError, is_still_ours, refused
from gsd_review_broker.integrations.planning import text_of
from gsd_review_broker.integrations.receipts import Receipts

_PATIENCE_SECONDS = 10.0
_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")


class Origin(StrEnum):
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
    origin: Origin
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
    """Of every client. Asking the programs for their versions takes a second or two."""
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
    """Empty for a client that has no server entry."""
    server = client.server
    scopes = [scope for scope in Scope if scope is Scope.USER or around.root]
    return tuple(_place(client, server, scope, around) for scope in scopes) if server else ()


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


def _place(client: Client, server: ServerEntry, scope: Scope, around: Environment) -> ConfigFile:
    path = server.file(scope, around)
    try:
        value = _entry(server, path)
        if value is None:
            return ConfigFile(scope=scope, path=path, origin=Origin.ABSENT)
        receipt = Receipts(around.state).read(client.name, around.base(scope))
        record = receipt.document(path) if receipt else None
    except BrokerError as error:
        return ConfigFile(scope=scope, path=path, origin=Origin.UNREADABLE, problem=error.message)
    ours = any(e.path == server.path and is_still_ours(value, e.value) for e in (record.entries if record else ()))
    return ConfigFile(scope=scope, path=path, origin=Origin.OURS if ours else Origin.FOREIGN, url=_address(value))


def _entry(server: ServerEntry, path: Path) -> Any:
    form = FORMATS[server.format]
    snapshot = files.read(path)
    if snapshot.content is None:
        return None
    try:
        value = form.find(text_of(snapshot), server.path)
    except (UnreadableError, UnfitError) as error:
        raise refused(path, str(error), "Fix the file.") from error
    return None if value is MISSING else value


def _address(value: Any) -> str | None:
    """A URL, or the words of a program."""
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
