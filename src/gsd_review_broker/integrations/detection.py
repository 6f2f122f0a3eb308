"""Which clients are here, and which of them know the broker."""

import os
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
from gsd_review_broker.integrations.clients.wanted import FORMATS, server_document, server_path
from gsd_review_broker.integrations.environment import Client, Environment, Scope
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
    programs = [shutil.which(client.value, path=around.variables.get("PATH", os.defpath)) for client in Client]
    with ThreadPoolExecutor(len(programs)) as pool:
        said = list(pool.map(_version, programs)) if versions else [None] * len(programs)
    return [
        ClientStatus(
            client=client,
            program=Path(program) if program else None,
            version=version,
            places=places_of(client, around),
        )
        for client, program, version in zip(Client, programs, said, strict=True)
    ]


def places_of(client: Client, around: Environment) -> tuple[ConfigFile, ...]:
    return tuple(_place(client, scope, around) for scope in Scope if scope is Scope.USER or around.root)


def _version(program: str | None) -> str | None:
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(done.stdout)
    return found[0] if found and done.returncode == 0 else None


def _place(client: Client, scope: Scope, around: Environment) -> ConfigFile:
    path = server_document(client, scope, around)
    try:
        value = _entry(client, path)
        if value is None:
            return ConfigFile(scope=scope, path=path, origin=Origin.ABSENT)
        receipt = Receipts(around.state).read(client.value, around.base(scope))
        record = receipt.document(path) if receipt else None
    except BrokerError as error:
        return ConfigFile(scope=scope, path=path, origin=Origin.UNREADABLE, problem=error.message)
    ours = any(
        e.path == server_path(client) and is_still_ours(value, e.value) for e in (record.entries if record else ())
    )
    return ConfigFile(scope=scope, path=path, origin=Origin.OURS if ours else Origin.FOREIGN, url=_address(value))


def _entry(client: Client, path: Path) -> Any:
    form = FORMATS["toml" if client is Client.CODEX else "json"]
    snapshot = files.read(path)
    if snapshot.content is None:
        return None
    try:
        value = form.find(text_of(snapshot), server_path(client))
    except (UnreadableError, UnfitError) as error:
        raise refused(path, str(error), "Mend the file.") from error
    return None if value is MISSING else value


def _address(value: Any) -> str | None:
    """A URL, or the words of a program."""
    entry = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    said = entry.get("url") or entry.get("httpUrl")
    if said:
        return str(said)
    words = [*_words(entry.get("command")), *_words(entry.get("args"))]
    return shlex.join(words) if words else None


def _words(value: Any) -> list[str]:
    return (
        [str(word) for word in cast("list[Any]", value)] if isinstance(value, list) else [str(value)] if value else []
    )
