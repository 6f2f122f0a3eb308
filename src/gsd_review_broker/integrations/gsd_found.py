"""Which GSD is installed here: its line, its version, and the client that it runs in."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from gsd_review_broker.files.private import UnfitFileError, read_regular
from gsd_review_broker.integrations.environment import Environment, Scope

Runtime = Literal["claude", "codex"]
RUNTIMES: tuple[Runtime, ...] = ("claude", "codex")
RUNTIME_NAMES: dict[Runtime, str] = {"claude": "Claude Code", "codex": "Codex"}
_VARIABLES: dict[Runtime, str] = {"claude": "CLAUDE_CONFIG_DIR", "codex": "CODEX_HOME"}
_LONGEST_VERSION = 40


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
    """The client's own folder, below which GSD is."""

    def __str__(self) -> str:
        return f"{self.line} {self.version} for {RUNTIME_NAMES[self.runtime]} in {self.folder}"

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
    return tuple(found for scope in scopes for runtime in RUNTIMES for found in _below(runtime, scope, around))


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
        words = read_regular(file).decode("utf-8", "replace").split()
        if words and words[0].isprintable():
            return words[0][:_LONGEST_VERSION]
    return "of an unknown version"
