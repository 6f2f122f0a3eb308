"""Paths on this account: the home folder, the variables that clients use, the project, our own state.

Also the address that a client is given when it connects over HTTP: the one at which the right broker answers.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gsd_review_broker import LOOPBACK
from gsd_review_broker.client import Target, UnreachableError, connect
from gsd_review_broker.client.discovery import answering, described
from gsd_review_broker.domain.words import Audience
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.git.discovery import find_root
from gsd_review_broker.git.program import run_git
from gsd_review_broker.integrations.formats import ConfigEntry, Language
from gsd_review_broker.settings import locations


class Scope(StrEnum):
    PROJECT = "project"
    USER = "user"


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    home: Path
    variables: Mapping[str, str]
    root: Path | None
    state: Path

    @classmethod
    def of(cls, folder: Path) -> "Environment":
        return cls(
            home=Path.home(),
            variables=os.environ,
            root=_work_tree(folder),
            state=locations.state_folder() / "installed",
        )

    @property
    def path(self) -> str:
        """Return where programs are looked for."""
        return self.variables.get("PATH", os.defpath)

    @property
    def programs(self) -> Path:
        """Return the folder of the running Python, with the commands of our package."""
        return Path(sys.executable).parent

    def project(self, hint: str = "Go into one, or use --scope user.") -> Path:
        if self.root is None:
            raise BrokerError(
                Code.INVALID_ARGUMENT, "this folder is not in a git repository, so there is no project to set up", hint
            )
        return self.root

    def in_main_work_tree(self) -> "Environment":
        return replace(self, root=find_root(self.root) or self.root) if self.root else self

    def base(self, scope: Scope) -> Path | None:
        """Return what a receipt is kept for: the project, or None for the account."""
        return self.project() if scope is Scope.PROJECT else None

    def folder(self, variable: str, *default: str) -> Path:
        """Return a client's folder: the one that its variable names, or its default."""
        named = self.variables.get(variable)
        return Path(named).absolute() if named else self.home.joinpath(*default)


def _work_tree(folder: Path) -> Path | None:
    """Find the work tree of the folder: a linked one has its own files, but shares the main one's broker."""
    try:
        answer = run_git(folder, "rev-parse", "--show-toplevel")
    except (OSError, subprocess.TimeoutExpired):
        return None
    name = os.fsdecode(answer.output).rstrip("\n")
    return Path(os.path.realpath(name)) if answer.code == 0 and name else None


def running_endpoint(role: Audience, scope: Scope, around: Environment) -> str:
    """Return the address of the broker that now serves this project, or this account."""
    try:
        broker = connect(_target(scope, around))
    except UnreachableError as error:
        hint = "Start it with `tandem up`, then install again. Without --http, the client starts the broker by itself."
        raise UnreachableError(f"there is no address to write: {error.message}", hint) from error
    broker.connection.close()
    return broker.connection.url + role.endpoint


def given_endpoint(address: str, role: Audience, scope: Scope, around: Environment) -> str:
    """Return the address that the user gave; refuse it if the broker of another repository answers there."""
    endpoint = _checked(address, role)
    broker = answering(endpoint) if urlsplit(endpoint).hostname in LOOPBACK else None
    target = _target(scope, around, url=endpoint)
    if broker is not None and not target.accepts(broker.serves):
        raise BrokerError(
            Code.CONFLICT,
            f"the broker at {broker.connection.url} serves {broker.serves}, not {described(target.locations)}",
            "Leave --url out: the client then finds the broker of its folder.",
        )
    return endpoint


def _target(scope: Scope, around: Environment, url: str | None = None) -> Target:
    # BROKER_URL names the broker of a running client, and is not meant for a file.
    folder = around.project() if scope is Scope.PROJECT else around.home
    environment = {name: value for name, value in around.variables.items() if name != "BROKER_URL"}
    return Target.of(folder, url=url, user=scope is Scope.USER, environment=environment)


def _checked(address: str, role: Audience) -> str:
    try:
        parts = urlsplit(address)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not address.isprintable() or set(address) & set(" \"'\\<>"):
        raise BrokerError(
            Code.INVALID_ARGUMENT, f"{address!r} is not an http address", "It looks like http://127.0.0.1:8321"
        )
    return address if urlsplit(address).path.rstrip("/") else address.rstrip("/") + role.endpoint


_COMMANDS = ("propose", "review", "status")
_SKILLS = ("tandem-proposing", "tandem-reviewing")
_REVIEW = "tandem-review"
_SHELLS = {
    "claude": "Run it in the foreground; Bash stops a command after 120 s.",
    "codex": "If the shell returns while it still runs, poll it until it exits.",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientFile:
    """A file that is ours as a whole, or one with entries of ours beside those of others."""

    path: Path
    text: str | None = None
    """All of it, if the file is ours as a whole."""
    format: Language = "json"
    entries: tuple[ConfigEntry, ...] = ()
    start: str = ""
    """What a new file begins with."""
    personal: bool = False
    """Never shared, also where the project's other files are."""


CommandForm = Callable[[str, str], ClientFile]


def skills(role: Audience, client: str, agent_type: str, *, waiting: str = "") -> tuple[ClientFile, ...]:
    """Return what the endpoint's tools can do. `waiting` is what the client's model must know about waiting."""
    values = {
        "{agent_type}": agent_type,
        "{reviewer_id}": f"{client}-reviewer",
        "{waiting}": f"\n{waiting}\n" if waiting else "",
    }
    fitting = [name for name, fits in zip(_SKILLS, (role.proposes, role.reviews), strict=True) if fits]
    return tuple(_skill(name, values) for name in fitting)


def review_skill(runtime: str) -> ClientFile:
    """Return the skill of GSD's agents. Only what a runtime's shell does with a command that waits differs."""
    return _skill(_REVIEW, {"{waiting}": _SHELLS[runtime]})


def _skill(name: str, values: Mapping[str, str]) -> ClientFile:
    text = _asset("skills", name, "SKILL.md")
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return ClientFile(path=Path("skills", name, "SKILL.md"), text=text)


def commands(role: Audience, form: CommandForm) -> tuple[ClientFile, ...]:
    """Return what the role can do: no command to review if nothing can be claimed."""
    fits = {"status": True, "propose": role.proposes, "review": role.reviews}
    return tuple(form(name, _asset("commands", f"{name}.md")) for name in _COMMANDS if fits[name])


def claude_command(name: str, source: str) -> ClientFile:
    """Return /tandem:propose; the folder gives the prefix."""
    return ClientFile(path=Path("commands", "tandem", f"{name}.md"), text=source)


def gemini_command(name: str, source: str) -> ClientFile:
    """Return /tandem:propose. JSON's strings are valid TOML."""
    description, body = _parts(source)
    prompt = body.replace("$ARGUMENTS", "{{args}}")
    lines = (f"{key} = {json.dumps(value)}\n" for key, value in (("description", description), ("prompt", prompt)))
    return ClientFile(path=Path("commands", "tandem", f"{name}.toml"), text="".join(lines))


def opencode_command(name: str, source: str) -> ClientFile:
    """Return /tandem-propose."""
    description, body = _parts(source)
    return ClientFile(
        path=Path("commands", f"tandem-{name}.md"), text=f"---\ndescription: {description}\n---\n\n{body}"
    )


def _parts(source: str) -> tuple[str, str]:
    """Return the description in the front matter, and the text below it."""
    _, front, body = source.split("---\n", 2)
    description = next(line for line in front.splitlines() if line.startswith("description: "))
    return description.removeprefix("description: "), body.lstrip("\n")


def _asset(*name: str) -> str:
    return resources.files("gsd_review_broker.integrations").joinpath("assets", *name).read_text("utf-8")


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
        """Return the usual form of a server that the client starts."""
        program, *arguments = self.program
        return {"command": program, "args": arguments}


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientSetup:
    documents: tuple[ClientFile, ...] = ()
    assets: tuple[ClientFile, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def personal(self) -> frozenset[str]:
        return frozenset(str(file.path) for file in (*self.documents, *self.assets) if file.personal)


def _nothing_more(choice: Choice, around: Environment) -> ClientSetup:  # noqa: ARG001 - a client's own looks at them
    return ClientSetup()


@dataclass(frozen=True, kw_only=True, slots=True)
class Client:
    """One program of the user's that tandem can set up."""

    name: str
    """As the user types it; its program on the PATH has the same."""
    full_name: str
    server: Callable[[Choice, Environment], ClientFile] | None
    """The file in which it looks for MCP servers, with our entry; None for a client that calls no broker."""
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
        server = self.server(choice, around)
        # A client may have more to say in the file of the server's entry.
        same = [document for document in more.documents if document.path == server.path]
        entries = (*(entry for document in same for entry in document.entries), *server.entries)
        others = tuple(document for document in more.documents if document.path != server.path)
        return replace(more, documents=(replace(server, entries=entries), *others))


def tandem_program(around: Environment, *, shared: bool) -> str:
    """Return its name if the PATH leads to it or the file is shared, and otherwise its place beside this Python."""
    if shared or shutil.which("tandem", path=around.path):
        return "tandem"
    return shutil.which("tandem", path=str(around.programs)) or "tandem"


def assets_below(folder: Path, assets: Iterable[ClientFile]) -> tuple[ClientFile, ...]:
    return tuple(replace(asset, path=folder / asset.path) for asset in assets)


HOOK_TIMEOUT = 30


def start_hooks(choice: Choice) -> tuple[ConfigEntry, ...]:
    """`tandem mcp` starts the broker by itself, and a broker on another machine cannot be started from here."""
    command = up_command(choice)
    return (ConfigEntry(path=("hooks", "SessionStart"), value=hook(command), in_list=True),) if command else ()


def hook(command: str) -> dict[str, Any]:
    """Runs at the start of a session, so that the broker is running before the first call."""
    return {"matcher": "startup|resume", "hooks": [{"type": "command", "command": command, "timeout": HOOK_TIMEOUT}]}


def up_command(choice: Choice) -> str | None:
    """Name the port that the client connects to: a broker on another port would silently be the wrong one."""
    parts = urlsplit(choice.url or "")
    if parts.hostname not in LOOPBACK:
        return None
    words = [choice.tandem, "up", "--port", str(parts.port or 80)]
    return shlex.join(words if choice.scope is Scope.PROJECT else [*words, "--user"])
