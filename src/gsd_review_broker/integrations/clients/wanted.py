"""What each client needs to find the broker, and in which of its files."""

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, assert_never
from urllib.parse import urlsplit

from gsd_review_broker.integrations.clients import claude_files
from gsd_review_broker.integrations.environment import Client, ClientRole, Environment, Scope
from gsd_review_broker.integrations.formats.entries import Entry, Format
from gsd_review_broker.integrations.formats.json_format import JsonFormat
from gsd_review_broker.integrations.formats.toml_format import TomlFormat

SERVER = "gsdreview"
# opencode gives up after 60 s unless told; a wait may take 240.
_OPENCODE_TIMEOUT = 270_000
_HOOK_TIMEOUT = 30
_THIS_MACHINE = frozenset({"127.0.0.1", "localhost", "::1"})
# opencode writes this into every file that lacks it; a file of ours has it from the beginning, and so stays ours.
_OPENCODE_START = '{\n  "$schema": "https://opencode.ai/config.json"\n}\n'
FORMATS: dict[str, Format] = {"json": JsonFormat(), "toml": TomlFormat()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What the user asked for."""

    url: str | None
    """None: by `tandem mcp`, a program that the client starts, and that finds (or starts) the folder's own broker."""
    role: ClientRole = ClientRole.PROPOSER
    scope: Scope = Scope.PROJECT
    trust: bool = False

    @property
    def program(self) -> tuple[str, ...]:
        role = () if self.role is ClientRole.ALL else ("--role", self.role.value)
        return _tandem(self.scope), "mcp", *role

    @property
    def shown(self) -> str:
        return self.url or shlex.join(self.program)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientFile:
    path: Path
    format: Literal["json", "toml"]
    entries: tuple[Entry, ...]
    start: str = ""
    """What a new file begins with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asset:
    path: Path
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientSetup:
    documents: tuple[ClientFile, ...]
    assets: tuple[Asset, ...] = ()
    notes: tuple[str, ...] = ()


def server_document(client: Client, scope: Scope, around: Environment) -> Path:
    """The file in which a client looks for MCP servers."""
    if scope is Scope.PROJECT:
        return _project_document(client, around.project())
    match client:
        case Client.CLAUDE:
            return around.folder("CLAUDE_CONFIG_DIR") / ".claude.json"
        case Client.CODEX:
            return around.folder("CODEX_HOME", ".codex") / "config.toml"
        case Client.GEMINI:
            return around.folder("GEMINI_CLI_HOME") / ".gemini" / "settings.json"
        case Client.OPENCODE:
            return _json_or_jsonc(around.folder("XDG_CONFIG_HOME", ".config") / "opencode" / "opencode")
        case _:
            assert_never(client)


def _project_document(client: Client, root: Path) -> Path:
    match client:
        case Client.CLAUDE:
            return root / ".mcp.json"
        case Client.CODEX:
            return root / ".codex" / "config.toml"
        case Client.GEMINI:
            return root / ".gemini" / "settings.json"
        case Client.OPENCODE:
            return _json_or_jsonc(root / "opencode")
        case _:
            assert_never(client)


def server_path(client: Client) -> tuple[str, str]:
    """The keys that lead to our entry."""
    match client:
        case Client.CLAUDE | Client.GEMINI:
            return "mcpServers", SERVER
        case Client.CODEX:
            return "mcp_servers", SERVER
        case Client.OPENCODE:
            return "mcp", SERVER
        case _:
            assert_never(client)


def server_value(client: Client, choice: Choice) -> dict[str, Any]:
    program, *arguments = choice.program
    by_program = {"command": program, "args": arguments}
    match client:
        case Client.CLAUDE:
            return {"type": "http", "url": choice.url} if choice.url else {"type": "stdio", **by_program}
        case Client.CODEX:
            trust = {"default_tools_approval_mode": "approve"} if choice.trust else {}
            return ({"url": choice.url} if choice.url else by_program) | trust
        case Client.GEMINI:
            return ({"httpUrl": choice.url} if choice.url else by_program) | ({"trust": True} if choice.trust else {})
        case Client.OPENCODE:
            address = (
                {"type": "remote", "url": choice.url, "oauth": False}
                if choice.url
                else {"type": "local", "command": list(choice.program)}
            )
            return address | {"enabled": True, "timeout": _OPENCODE_TIMEOUT}
        case _:
            assert_never(client)


def wanted(client: Client, choice: Choice, around: Environment) -> ClientSetup:
    path = server_document(client, choice.scope, around)
    entry = Entry(path=server_path(client), value=server_value(client, choice))
    server = ClientFile(
        path=path,
        format="toml" if client is Client.CODEX else "json",
        entries=(entry,),
        start=_OPENCODE_START if client is Client.OPENCODE else "",
    )
    match client:
        case Client.CLAUDE:
            return _with_claude_files(server, choice, around)
        case Client.CODEX if choice.scope is Scope.PROJECT:
            return ClientSetup(documents=(server,), notes=("Codex reads a project's configuration once you trust it.",))
        case Client.GEMINI if choice.scope is Scope.PROJECT:
            return ClientSetup(documents=(server,), notes=("Gemini CLI connects once you trust the folder.",))
        case _:
            return ClientSetup(documents=(server,))


def hook(command: str) -> dict[str, Any]:
    """Run as a session begins, so that the broker is there before the first call."""
    return {
        "matcher": "startup|resume",
        "hooks": [{"type": "command", "command": command, "timeout": _HOOK_TIMEOUT}],
    }


def _with_claude_files(server: ClientFile, choice: Choice, around: Environment) -> ClientSetup:
    in_project = choice.scope is Scope.PROJECT
    folder = around.project() / ".claude" if in_project else around.folder("CLAUDE_CONFIG_DIR", ".claude")
    documents = [server, ClientFile(path=folder / "settings.json", format="json", entries=_start_hooks(choice))]
    notes: list[str] = []
    if in_project and not choice.trust:
        notes.append("Claude Code asks once whether to use the server of the project's .mcp.json.")
    if in_project and not shutil.which("tandem"):
        notes.append("tandem is not on your PATH; Claude Code needs it there.")
    texts = claude_files.of_role(choice.role)
    return ClientSetup(
        documents=_trusting(documents, folder, in_project=in_project) if choice.trust else tuple(documents),
        assets=tuple(Asset(path=folder.joinpath(*text.installed), text=text.text) for text in texts),
        notes=tuple(notes),
    )


def _trusting(documents: list[ClientFile], folder: Path, *, in_project: bool) -> tuple[ClientFile, ...]:
    """Trust is personal: in a project it goes into the settings that are not shared."""
    allowed = Entry(path=("permissions", "allow"), value=f"mcp__{SERVER}", in_list=True)
    if in_project:
        enabled = Entry(path=("enabledMcpjsonServers",), value=SERVER, in_list=True)
        return *documents, ClientFile(path=folder / "settings.local.json", format="json", entries=(enabled, allowed))
    server, settings = documents
    return server, ClientFile(path=settings.path, format="json", entries=(*settings.entries, allowed))


def _start_hooks(choice: Choice) -> tuple[Entry, ...]:
    """`tandem mcp` starts the broker by itself, and a broker elsewhere is not ours to start."""
    command = up_command(choice)
    return (Entry(path=("hooks", "SessionStart"), value=hook(command), in_list=True),) if command else ()


def up_command(choice: Choice) -> str | None:
    """On exactly the port that the client connects to: a broker on another would be the wrong one, silently."""
    parts = urlsplit(choice.url or "")
    if parts.hostname not in _THIS_MACHINE:
        return None
    words = [_tandem(choice.scope), "up", "--port", str(parts.port or 80)]
    return shlex.join(words if choice.scope is Scope.PROJECT else [*words, "--user"])


def _tandem(scope: Scope) -> str:
    """A project's files are shared, so the name alone."""
    named = scope is Scope.PROJECT or shutil.which("tandem")
    return "tandem" if named else str(Path(sys.executable).with_name("tandem"))


def _json_or_jsonc(stem: Path) -> Path:
    """opencode reads both; what is there already is the one that people edit."""
    with_comments = stem.with_suffix(".jsonc")
    return with_comments if with_comments.is_file() else stem.with_suffix(".json")
