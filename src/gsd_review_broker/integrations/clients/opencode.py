"""opencode: the server's entry, skills and commands."""

from pathlib import Path
from typing import Any

from gsd_review_broker.domain.words import Audience
from gsd_review_broker.integrations.clients import setup
from gsd_review_broker.integrations.clients.setup import Choice, Client, ClientFile, ClientSetup, Environment, Scope
from gsd_review_broker.integrations.formats import ConfigEntry

# It writes this into every file that lacks it. Our file has it from the beginning, so that it stays unchanged.
_START = '{\n  "$schema": "https://opencode.ai/config.json"\n}\n'


def _user_folder(around: Environment) -> Path:
    return around.folder("XDG_CONFIG_HOME", ".config") / "opencode"


def _server(choice: Choice, around: Environment) -> ClientFile:
    """Choose an existing `opencode.jsonc`, which is the one that people edit; opencode reads both files."""
    folder = around.project() if choice.scope is Scope.PROJECT else _user_folder(around)
    with_comments = folder / "opencode.jsonc"
    path = with_comments if with_comments.is_file() else folder / "opencode.json"
    address: dict[str, Any] = (
        {"type": "remote", "url": choice.url, "oauth": False}
        if choice.url
        else {"type": "local", "command": list(choice.program)}
    )
    # Its own limit is 60 s.
    entry = ConfigEntry(path=("mcp", setup.SERVER), value=address | {"enabled": True, "timeout": setup.LONGEST_CALL_MS})
    return ClientFile(path=path, entries=(entry,), start=_START)


def _more(choice: Choice, around: Environment) -> ClientSetup:
    folder = around.project() / ".opencode" if choice.scope is Scope.PROJECT else _user_folder(around)
    read = (*setup.commands(choice.role, setup.opencode_command), *setup.skills(choice.role, "opencode", "opencode"))
    return ClientSetup(assets=setup.assets_below(folder, read))


CLIENT = Client(
    name="opencode",
    full_name="opencode",
    server=_server,
    more=_more,
    sentences={Audience.PROPOSER: "/tandem-propose", Audience.REVIEWER: "/tandem-review"},
)
