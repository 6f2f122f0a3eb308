"""opencode."""

from pathlib import Path
from typing import Any

from gsd_review_broker.integrations.clients.setup import SERVER, Choice, Client, ServerEntry
from gsd_review_broker.integrations.environment import Environment, Scope

# Its default timeout is 60 s; a wait may take 240.
_TIMEOUT = 270_000
# It writes this into every file that lacks it. Our file has it from the beginning, so that it stays unchanged.
_START = '{\n  "$schema": "https://opencode.ai/config.json"\n}\n'


def _file(scope: Scope, around: Environment) -> Path:
    """It reads both files; an existing one is the one that people edit."""
    in_project = scope is Scope.PROJECT
    folder = around.project() if in_project else around.folder("XDG_CONFIG_HOME", ".config") / "opencode"
    with_comments = folder / "opencode.jsonc"
    return with_comments if with_comments.is_file() else folder / "opencode.json"


def _value(choice: Choice) -> dict[str, Any]:
    address = (
        {"type": "remote", "url": choice.url, "oauth": False}
        if choice.url
        else {"type": "local", "command": list(choice.program)}
    )
    return address | {"enabled": True, "timeout": _TIMEOUT}


CLIENT = Client(
    name="opencode",
    full_name="opencode",
    server=ServerEntry(file=_file, path=("mcp", SERVER), value=_value, start=_START),
)
