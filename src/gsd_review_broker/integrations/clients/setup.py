"""The description of a client, and the parts that several of them share."""

import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gsd_review_broker.integrations.environment import ClientRole, Environment, Scope
from gsd_review_broker.integrations.formats.entries import Entry, Format
from gsd_review_broker.integrations.formats.json_format import JsonFormat
from gsd_review_broker.integrations.formats.toml_format import TomlFormat

SERVER = "gsdreview"
Language = Literal["json", "toml"]
FORMATS: dict[Language, Format] = {"json": JsonFormat(), "toml": TomlFormat()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What the user asked for."""

    url: str | None
    """None: by `tandem mcp`, a program that the client starts, and that finds (or starts) the folder's own broker."""
    role: ClientRole = ClientRole.PROPOSER
    scope: Scope = Scope.PROJECT
    trust: bool = False
    gate: bool = False
    """Also the hooks that deny a commit without approval; Claude Code has them."""
    shared: bool = False
    """The project's files are to be committed; otherwise they are kept out of git."""
    tandem: str = "tandem"
    """How the client starts our program."""

    @property
    def program(self) -> tuple[str, ...]:
        role = () if self.role is ClientRole.ALL else ("--role", self.role.value)
        return self.tandem, "mcp", *role

    @property
    def shown(self) -> str:
        return self.url or shlex.join(self.program)

    @property
    def as_program(self) -> dict[str, Any]:
        """The usual form of a server that the client starts."""
        program, *arguments = self.program
        return {"command": program, "args": arguments}


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientFile:
    path: Path
    format: Language
    entries: tuple[Entry, ...]
    start: str = ""
    """What a new file begins with."""
    personal: bool = False
    """Never shared, also where the project's other files are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asset:
    path: Path
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientSetup:
    documents: tuple[ClientFile, ...] = ()
    assets: tuple[Asset, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerEntry:
    """Where a client looks for MCP servers, and what stands there for ours."""

    file: Callable[[Scope, Environment], Path]
    path: tuple[str, str]
    """The keys that lead to our entry."""
    value: Callable[[Choice], dict[str, Any]]
    format: Language = "json"
    start: str = ""
    """What a new file begins with."""

    def document(self, choice: Choice, around: Environment) -> ClientFile:
        return ClientFile(
            path=self.file(choice.scope, around),
            format=self.format,
            entries=(Entry(path=self.path, value=self.value(choice)),),
            start=self.start,
        )


def _nothing_more(choice: Choice, around: Environment) -> ClientSetup:  # noqa: ARG001 - a client's own looks at them
    return ClientSetup()


@dataclass(frozen=True, kw_only=True, slots=True)
class Client:
    """One program of the user's that tandem can set up."""

    name: str
    """As the user types it; its program on the PATH has the same."""
    full_name: str
    server: ServerEntry | None
    """None where it has other files of ours and calls no broker."""
    more: Callable[[Choice, Environment], ClientSetup] = _nothing_more
    """Documents, assets and notes beside the server's entry."""

    def __str__(self) -> str:
        return self.name

    def setup(self, choice: Choice, around: Environment) -> ClientSetup:
        more = self.more(choice, around)
        if self.server is None:
            return more
        server = self.server.document(choice, around)
        return ClientSetup(documents=(server, *more.documents), assets=more.assets, notes=more.notes)


def tandem_program(around: Environment, *, shared: bool) -> str:
    """By its name if the PATH leads to it, and in files that others use too; else where this Python has it."""
    if shared or shutil.which("tandem", path=around.path):
        return "tandem"
    return shutil.which("tandem", path=str(around.programs)) or "tandem"


def note_in_project(text: str) -> Callable[[Choice, Environment], ClientSetup]:
    """For a client that needs only a note to the user."""

    def more(choice: Choice, around: Environment) -> ClientSetup:  # noqa: ARG001 - every client's takes it
        return ClientSetup(notes=(text,) if choice.scope is Scope.PROJECT else ())

    return more
