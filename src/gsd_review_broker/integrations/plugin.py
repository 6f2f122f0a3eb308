"""Claude Code's plugin folder, made from the same texts as the installer's."""

import json
from pathlib import Path
from typing import Any, cast

from gsd_review_broker import __version__
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.integrations import files
from gsd_review_broker.integrations.clients import texts
from gsd_review_broker.integrations.clients.claude import SERVER_PATH, server_value
from gsd_review_broker.integrations.clients.hooks import hook, up_command
from gsd_review_broker.integrations.clients.setup import Choice

NAME = "tandem"
_MARKETPLACE = "gsd-tandem"
_MANIFEST = (".claude-plugin", "plugin.json")


def plugin_files(choice: Choice) -> dict[tuple[str, ...], str]:
    """By their path below the plugin's folder. The marketplace is the folder itself, so that it can be installed."""
    table, server = SERVER_PATH
    manifest = {
        "name": NAME,
        "version": __version__,
        "description": "Changes are proposed, reviewed by another agent or a person, and only then land.",
        "author": {"name": "The GSD Tandem authors"},
        "license": "MIT",
        "keywords": ["code-review", "mcp", "gsd"],
    }
    marketplace = {
        "name": _MARKETPLACE,
        "owner": manifest["author"],
        "plugins": [{"name": NAME, "source": "./", "description": manifest["description"]}],
    }
    command = up_command(choice)
    return {
        _MANIFEST: _json(manifest),
        (".claude-plugin", "marketplace.json"): _json(marketplace),
        (".mcp.json",): _json({table: {server: server_value(choice)}}),
        **({("hooks", "hooks.json"): _json({"hooks": {"SessionStart": [hook(command)]}})} if command else {}),
        **{text.path: text.content for text in texts.commands(choice.role, texts.claude_plugin_command)},
        **{text.path: text.content for text in texts.skills(choice.role, texts.CLAUDE)},
    }


def write_plugin(folder: Path, choice: Choice) -> list[Path]:
    """Into an empty folder, or over an earlier plugin of ours; never over other files."""
    _refuse_foreign(folder)
    written: list[Path] = []
    for name, text in plugin_files(choice).items():
        path = folder.joinpath(*name)
        files.make_folders(files.missing_folders(path))
        files.write(files.read(path, within=folder), text.encode(), new_mode=0o644)
        written.append(path)
    return written


def _refuse_foreign(folder: Path) -> None:
    with files.explained(folder):
        if not folder.exists() or not any(folder.iterdir()):
            return
    try:
        manifest: Any = json.loads(folder.joinpath(*_MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        manifest = None
    if not isinstance(manifest, dict) or cast("dict[str, Any]", manifest).get("name") != NAME:
        raise BrokerError(
            Code.CONFLICT,
            f"{folder} is neither empty nor our plugin",
            "Name an empty folder, or one that does not exist yet.",
        )


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"
