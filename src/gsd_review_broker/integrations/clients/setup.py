"""The description of a client, and the parts that several of them share."""

import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gsd_review_broker.domain.words import Audience
from gsd_review_broker.integrations.clients.texts import Text
from gsd_review_broker.integrations.environment import Environment, Scope
from gsd_review_broker.integrations.formats import Language
from gsd_review_broker.integrations.formats.entries import ConfigEntry
from gsd_review_broker.settings.runtime_file import LOOPBACK

SERVER = "gsdreview"
# More than the longest wait that the broker grants, 240 s.
LONGEST_CALL_MS = 270_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What the user asked for."""

    url: str | None
    """None: by `tandem mcp`, a program that the client starts, and that finds (or starts) the folder's own broker."""
    role: Audience = Audience.PROPOSER
    scope: Scope = Scope.PROJECT
    trust: bool = False
    gate: bool = False
    """Also the hooks that deny a commit without approval; Claude Code has them."""
    shared: bool = False
    """The project's files are to be committed; otherwise they are kept out of git."""
    tandem: str = "tandem"
    """How the client starts our program."""
    runtimes: tuple[str, ...] = ()
    """GSD: the clients that it runs in; empty for all in which it is found."""

    @property
    def program(self) -> tuple[str, ...]:
        role = () if self.role is Audience.ALL else ("--role", self.role.value)
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
    entries: tuple[ConfigEntry, ...]
    start: str = ""
    """What a new file begins with."""
    personal: bool = False
    """Never shared, also where the project's other files are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asset:
    path: Path
    text: str
    personal: bool = False
    """Never shared, also where the project's other files are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientSetup:
    documents: tuple[ClientFile, ...] = ()
    assets: tuple[Asset, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def personal(self) -> frozenset[str]:
        return frozenset(str(file.path) for file in (*self.documents, *self.assets) if file.personal)


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
            entries=(ConfigEntry(path=self.path, value=self.value(choice)),),
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
    sentences: Mapping[Audience, str] = field(default_factory=dict[Audience, str], hash=False)
    """What a person types in it to make it propose, or review."""
    is_of_broker: bool = False
    """Its file is the broker's, which serves all worktrees of a repository: it is in the main one."""

    def __str__(self) -> str:
        return self.name

    def setup(self, choice: Choice, around: Environment) -> ClientSetup:
        more = self.more(choice, around)
        if self.server is None:
            return more
        server = self.server.document(choice, around)
        # A client may have more to say in the file of the server's entry.
        same = [document for document in more.documents if document.path == server.path]
        entries = (*(entry for document in same for entry in document.entries), *server.entries)
        others = tuple(document for document in more.documents if document.path != server.path)
        return replace(more, documents=(replace(server, entries=entries), *others))


def tandem_program(around: Environment, *, shared: bool) -> str:
    """By its name if the PATH leads to it, and in files that others use too; else where this Python has it."""
    if shared or shutil.which("tandem", path=around.path):
        return "tandem"
    return shutil.which("tandem", path=str(around.programs)) or "tandem"


def assets_below(folder: Path, texts: Iterable[Text]) -> tuple[Asset, ...]:
    return tuple(Asset(path=folder.joinpath(*text.path), text=text.content) for text in texts)


HOOK_TIMEOUT = 30


def start_hooks(choice: Choice) -> tuple[ConfigEntry, ...]:
    """`tandem mcp` starts the broker by itself, and a broker on another machine cannot be started from here."""
    command = up_command(choice)
    return (ConfigEntry(path=("hooks", "SessionStart"), value=hook(command), in_list=True),) if command else ()


def hook(command: str) -> dict[str, Any]:
    """Runs at the start of a session, so that the broker is running before the first call."""
    return {"matcher": "startup|resume", "hooks": [{"type": "command", "command": command, "timeout": HOOK_TIMEOUT}]}


def up_command(choice: Choice) -> str | None:
    """On exactly the port that the client connects to: a broker on another port would silently be the wrong one."""
    parts = urlsplit(choice.url or "")
    if parts.hostname not in LOOPBACK:
        return None
    words = [choice.tandem, "up", "--port", str(parts.port or 80)]
    return shlex.join(words if choice.scope is Scope.PROJECT else [*words, "--user"])
