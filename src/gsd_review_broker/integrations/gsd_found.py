"""Which GSD is installed here: its line, its version, and the client that it runs in."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from gsd_review_broker.files.private import UnfitFileError, read_regular
from gsd_review_broker.integrations.environment import Environment, Scope

Runtime = Literal["claude", "codex"]
RUNTIMES: tuple[Runtime, ...] = ("claude", "codex")
RUNTIME_NAMES: dict[Runtime, str] = {"claude": "Claude Code", "codex": "Codex"}
_VARIABLES: dict[Runtime, str] = {"claude": "CLAUDE_CONFIG_DIR", "codex": "CODEX_HOME"}
_LONGEST_VERSION = 40
_UNKNOWN = "of an unknown version"
_NUMBERS = re.compile(r"\d+")


class GsdLine(StrEnum):
    """As the two packages are named on npm."""

    CLASSIC = "get-shit-done-cc"
    CORE = "@opengsd/gsd-core"

    @property
    def folder(self) -> str:
        return "get-shit-done" if self is GsdLine.CLASSIC else "gsd-core"


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledGsd:
    line: GsdLine
    version: str
    runtime: Runtime
    scope: Scope
    folder: Path
    """The client's own folder, or the plugin's, below which GSD is."""
    is_plugin: bool = False

    def __str__(self) -> str:
        kind = (
            f"as a plugin of {RUNTIME_NAMES[self.runtime]}" if self.is_plugin else f"for {RUNTIME_NAMES[self.runtime]}"
        )
        return f"{self.line} {self.version} {kind} in {self.folder}"

    @property
    def knows_capabilities(self) -> bool:
        """Gates, instructions and reviewer lanes of others in GSD's own loop, in the form that we write."""
        parts = [int(part) for part in _NUMBERS.findall(self.version)[:2]]
        has_them = (self.folder / self.line.folder / "bin" / "lib" / "capability-consent.cjs").is_file()
        return self.line is GsdLine.CORE and parts >= [1, 14] and has_them

    @property
    def knows_global_skills(self) -> bool:
        """Can `agent_skills` name a skill of the account? Older versions look into the project only.

        Which client's folder such a name means is a setting of the project. GSD does not write that setting into a new
        project, so that the name means Claude Code's.
        """
        if self.runtime != "claude":
            return False
        with suppress(OSError, UnfitFileError):
            return b"global:" in read_regular(self.folder / self.line.folder / "bin" / "lib" / "init.cjs")
        return False


def runtime_folder(runtime: Runtime, scope: Scope, around: Environment) -> Path:
    name = f".{runtime}"
    return around.project() / name if scope is Scope.PROJECT else around.folder(_VARIABLES[runtime], name)


def installed_gsd(around: Environment) -> tuple[InstalledGsd, ...]:
    """The project's own first: it is the one that runs there."""
    scopes = [scope for scope in Scope if scope is Scope.USER or around.root]
    plugins = tuple(_plugins(around))
    return tuple(
        found
        for scope in scopes
        for found in (
            *(found for runtime in RUNTIMES for found in _below(runtime, scope, around)),
            *(plugin for plugin in plugins if plugin.scope is scope),
        )
    )


def _plugins(around: Environment) -> Iterator[InstalledGsd]:
    """gsd-core as a plugin of Claude Code, which lists what it has installed. A project's one is that project's."""
    for record in _plugin_records(runtime_folder("claude", Scope.USER, around) / "plugins" / "installed_plugins.json"):
        place, project, version = (record.get(name) for name in ("installPath", "projectPath", "version"))
        is_here = project is None or (around.root is not None and os.path.realpath(str(project)) == str(around.root))
        if isinstance(place, str) and is_here and (Path(place) / GsdLine.CORE.folder / "bin").is_dir():
            yield InstalledGsd(
                line=GsdLine.CORE, version=_shown(str(version)), runtime="claude", folder=Path(place), is_plugin=True,
                scope=Scope.USER if project is None else Scope.PROJECT,
            )  # fmt: skip


def _plugin_records(file: Path) -> list[dict[str, Any]]:
    try:
        plugins = json.loads(read_regular(file))["plugins"]
        named = [records for name, records in plugins.items() if name.startswith(f"{GsdLine.CORE.folder}@")]
        return [dict(record) for records in named for record in records]
    except (OSError, UnfitFileError, ValueError, LookupError, TypeError, AttributeError):
        return []


def _below(runtime: Runtime, scope: Scope, around: Environment) -> Iterator[InstalledGsd]:
    folder = runtime_folder(runtime, scope, around)
    for line in GsdLine:
        # GSD's move from one line to the other leaves an empty folder of the old one.
        if (folder / line.folder / "VERSION").is_file():
            version = _version(folder / line.folder / "VERSION")
            yield InstalledGsd(line=line, version=version, runtime=runtime, scope=scope, folder=folder)


def _version(file: Path) -> str:
    """One printable word; GSD writes it there at every installation."""
    with suppress(OSError, UnfitFileError):
        return _shown(read_regular(file).decode("utf-8", "replace"))
    return _UNKNOWN


def _shown(version: str) -> str:
    words = version.split()
    return words[0][:_LONGEST_VERSION] if words and words[0].isprintable() else _UNKNOWN
