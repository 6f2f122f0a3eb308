"""Google's Gemini CLI."""

from pathlib import Path
from typing import Any

from gsd_review_broker.integrations.clients.setup import SERVER, Choice, Client, ServerEntry, note_in_project
from gsd_review_broker.integrations.environment import Environment, Scope


def _file(scope: Scope, around: Environment) -> Path:
    folder = around.project() if scope is Scope.PROJECT else around.folder("GEMINI_CLI_HOME")
    return folder / ".gemini" / "settings.json"


def _value(choice: Choice) -> dict[str, Any]:
    return ({"httpUrl": choice.url} if choice.url else choice.as_program) | ({"trust": True} if choice.trust else {})


CLIENT = Client(
    name="gemini",
    full_name="Gemini CLI",
    server=ServerEntry(file=_file, path=("mcpServers", SERVER), value=_value),
    more=note_in_project("Gemini CLI connects once you trust the folder."),
)
