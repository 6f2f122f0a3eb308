"""What each client needs to find the broker, and in which of its files."""

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, assert_never

from gsd_review_broker.integrations import claude_files
from gsd_review_broker.integrations.entries import Entry, Format
from gsd_review_broker.integrations.json_format import JsonFormat
from gsd_review_broker.integrations.surroundings import Client, Role, Scope, Surroundings
from gsd_review_broker.integrations.toml_format import TomlFormat

SERVER = "gsdreview"
# opencode gives up after 60 s unless told; a wait may take 240.
_OPENCODE_TIMEOUT = 270_000
_HOOK_TIMEOUT = 30
# opencode writes this into every file that lacks it; a file of ours has it from the beginning, and so stays ours.
_OPENCODE_START = '{\n  "$schema": "https://opencode.ai/config.json"\n}\n'
FORMATS: dict[str, Format] = {"json": JsonFormat(), "toml": TomlFormat()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What the user asked for."""

    url: str
    role: Role = Role.PROPOSER
    scope: Scope = Scope.PROJECT
    trust: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
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
class Wanted:
    documents: tuple[Document, ...]
    assets: tuple[Asset, ...] = ()
    notes: tuple[str, ...] = ()


def server_document(client: Client, scope: Scope, around: Surroundings) -> Path:
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
    match client:
        case Client.CLAUDE:
            return {"type": "http", "url": choice.url}
        case Client.CODEX:
            return {"url": choice.url} | ({"default_tools_approval_mode": "approve"} if choice.trust else {})
        case Client.GEMINI:
            return {"httpUrl": choice.url} | ({"trust": True} if choice.trust else {})
        case Client.OPENCODE:
            return {
                "type": "remote",
                "url": choice.url,
                "enabled": True,
                "oauth": False,
                "timeout": _OPENCODE_TIMEOUT,
            }
        case _:
            assert_never(client)


def wanted(client: Client, choice: Choice, around: Surroundings) -> Wanted:
    path = server_document(client, choice.scope, around)
    entry = Entry(path=server_path(client), value=server_value(client, choice))
    server = Document(
        path=path,
        format="toml" if client is Client.CODEX else "json",
        entries=(entry,),
        start=_OPENCODE_START if client is Client.OPENCODE else "",
    )
    match client:
        case Client.CLAUDE:
            return _with_claude_files(server, choice, around)
        case Client.CODEX if choice.scope is Scope.PROJECT:
            return Wanted(documents=(server,), notes=("Codex reads a project's configuration once you trust it.",))
        case Client.GEMINI if choice.scope is Scope.PROJECT:
            return Wanted(documents=(server,), notes=("Gemini CLI connects once you trust the folder.",))
        case _:
            return Wanted(documents=(server,))


def hook(command: str) -> dict[str, Any]:
    """Run as a session begins, so that the broker is there before the first call."""
    return {
        "matcher": "startup|resume",
        "hooks": [{"type": "command", "command": command, "timeout": _HOOK_TIMEOUT}],
    }


def _with_claude_files(server: Document, choice: Choice, around: Surroundings) -> Wanted:
    in_project = choice.scope is Scope.PROJECT
    folder = around.project() / ".claude" if in_project else around.folder("CLAUDE_CONFIG_DIR", ".claude")
    start_hook = Entry(path=("hooks", "SessionStart"), value=hook(up_command(choice.scope)), in_list=True)
    documents = [server, Document(path=folder / "settings.json", format="json", entries=(start_hook,))]
    notes: list[str] = []
    if in_project and not choice.trust:
        notes.append("Claude Code asks once whether to use the server of the project's .mcp.json.")
    if in_project and not shutil.which("tandem"):
        notes.append("tandem is not on your PATH; the session hook needs it there.")
    texts = claude_files.of_role(choice.role)
    return Wanted(
        documents=_trusting(documents, folder, in_project=in_project) if choice.trust else tuple(documents),
        assets=tuple(Asset(path=folder.joinpath(*text.installed), text=text.text) for text in texts),
        notes=tuple(notes),
    )


def _trusting(documents: list[Document], folder: Path, *, in_project: bool) -> tuple[Document, ...]:
    """Trust is personal: in a project it goes into the settings that are not shared."""
    allowed = Entry(path=("permissions", "allow"), value=f"mcp__{SERVER}", in_list=True)
    if in_project:
        enabled = Entry(path=("enabledMcpjsonServers",), value=SERVER, in_list=True)
        return *documents, Document(path=folder / "settings.local.json", format="json", entries=(enabled, allowed))
    server, settings = documents
    return server, Document(path=settings.path, format="json", entries=(*settings.entries, allowed))


def up_command(scope: Scope) -> str:
    """A project's settings are shared, so the name alone; an account's broker serves all its repositories."""
    if scope is Scope.PROJECT:
        return "tandem up"
    program = "tandem" if shutil.which("tandem") else shlex.quote(str(Path(sys.executable).with_name("tandem")))
    return f"{program} up --user"


def _json_or_jsonc(stem: Path) -> Path:
    """opencode reads both; what is there already is the one that people edit."""
    with_comments = stem.with_suffix(".jsonc")
    return with_comments if with_comments.is_file() else stem.with_suffix(".json")
