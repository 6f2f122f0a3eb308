"""opencode: the server's entry, skills and commands."""

from pathlib import Path
from typing import Any

from gsd_review_broker.domain.words import Audience
from gsd_review_broker.integrations.clients.setup import (
    LONGEST_CALL_MS,
    SERVER,
    Addressee,
    Choice,
    Client,
    ClientSetup,
    Environment,
    Scope,
    ServerEntry,
    assets_below,
    commands,
    opencode_command,
    skills,
)

_READER = Addressee(agent_type="opencode", reviewer_id="opencode-reviewer")
# It writes this into every file that lacks it. Our file has it from the beginning, so that it stays unchanged.
_START = '{\n  "$schema": "https://opencode.ai/config.json"\n}\n'


def _user_folder(around: Environment) -> Path:
    return around.folder("XDG_CONFIG_HOME", ".config") / "opencode"


def _file(scope: Scope, around: Environment) -> Path:
    """It reads both files; an existing one is the one that people edit."""
    folder = around.project() if scope is Scope.PROJECT else _user_folder(around)
    with_comments = folder / "opencode.jsonc"
    return with_comments if with_comments.is_file() else folder / "opencode.json"


def _value(choice: Choice) -> dict[str, Any]:
    address = (
        {"type": "remote", "url": choice.url, "oauth": False}
        if choice.url
        else {"type": "local", "command": list(choice.program)}
    )
    # Its own limit is 60 s.
    return address | {"enabled": True, "timeout": LONGEST_CALL_MS}


def _more(choice: Choice, around: Environment) -> ClientSetup:
    folder = around.project() / ".opencode" if choice.scope is Scope.PROJECT else _user_folder(around)
    read = (*commands(choice.role, opencode_command), *skills(choice.role, _READER))
    return ClientSetup(assets=assets_below(folder, read))


CLIENT = Client(
    name="opencode",
    full_name="opencode",
    server=ServerEntry(file=_file, path=("mcp", SERVER), value=_value, start=_START),
    more=_more,
    sentences={Audience.PROPOSER: "/tandem-propose", Audience.REVIEWER: "/tandem-review"},
)
