"""The hook that starts the broker with a session, for clients over HTTP. Claude Code and Codex have the same."""

import shlex
from typing import Any
from urllib.parse import urlsplit

from gsd_review_broker import LOOPBACK
from gsd_review_broker.integrations.clients.setup import Choice
from gsd_review_broker.integrations.environment import Scope
from gsd_review_broker.integrations.formats.entries import Entry

HOOK_TIMEOUT = 30


def start_hooks(choice: Choice) -> tuple[Entry, ...]:
    """`tandem mcp` starts the broker by itself, and a broker on another machine cannot be started from here."""
    command = up_command(choice)
    return (Entry(path=("hooks", "SessionStart"), value=hook(command), in_list=True),) if command else ()


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
