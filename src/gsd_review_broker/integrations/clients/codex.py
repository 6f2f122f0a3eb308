"""OpenAI's Codex."""

from pathlib import Path
from typing import Any

from gsd_review_broker.integrations.clients.setup import SERVER, Choice, Client, ServerEntry, note_in_project
from gsd_review_broker.integrations.environment import Environment, Scope


def _file(scope: Scope, around: Environment) -> Path:
    in_project = scope is Scope.PROJECT
    return (around.project() / ".codex" if in_project else around.folder("CODEX_HOME", ".codex")) / "config.toml"


def _value(choice: Choice) -> dict[str, Any]:
    trust = {"default_tools_approval_mode": "approve"} if choice.trust else {}
    return ({"url": choice.url} if choice.url else choice.as_program) | trust


CLIENT = Client(
    name="codex",
    full_name="Codex",
    server=ServerEntry(file=_file, path=("mcp_servers", SERVER), value=_value, format="toml"),
    more=note_in_project("Codex reads a project's configuration once you trust it."),
)
