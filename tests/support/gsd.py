"""A small GSD tree, written by hand: what an installation of either line looks like from the outside."""

import json
from pathlib import Path

from tests.support.accounts import put

CLASSIC, CORE = "get-shit-done", "gsd-core"
HOOK = {"hooks": [{"type": "command", "command": "node gsd-check-update.js"}]}
CONFIG = '{\n  "mode": "yolo",\n  "commit_docs": true,\n  "workflow": {"research": true}\n}\n'


def gsd_tree(
    base: Path, line: str = CLASSIC, *, runtime: str = "claude", version: str = "1.42.3", knows_global: bool = True
) -> Path:
    """Below a project or a home folder. Returns the client's own folder."""
    folder = base / f".{runtime}"
    put(folder / line / "VERSION", version)
    put(folder / line / "bin" / "lib" / "init.cjs", "// startsWith('global:')\n" if knows_global else "// nothing\n")
    put(folder / line / "workflows" / "execute-phase.md", "# Execute\n")
    if line == CORE:
        put(folder / line / "bin" / "lib" / "capability-consent.cjs", "// consent\n")
    put(folder / "agents" / "gsd-executor.md", "---\nname: gsd-executor\n---\n")
    put(folder / "gsd-file-manifest.json", json.dumps({"version": version}))
    hooks = "hooks.json" if runtime == "codex" else "settings.local.json" if line == CORE else "settings.json"
    put(folder / hooks, json.dumps({"hooks": {"SessionStart": [HOOK]}}, indent=2))
    return folder


def gsd_project(root: Path, config: str = CONFIG) -> Path:
    """GSD's own configuration of a project."""
    return put(root / ".planning" / "config.json", config)
