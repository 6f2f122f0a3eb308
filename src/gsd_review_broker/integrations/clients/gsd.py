"""GSD: a skill for its agents, beside GSD's own files and never in them. GSD's updates leave it alone.

Tandem writes the skill's file. `agent_skills` in GSD's configuration names the agents that read it. A hook at the
start of a session starts the broker and repairs what is missing. gsd-core also gets a capability (`gsd_capability`).
"""

import json
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, cast

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.files import UnfitFileError, read_regular
from gsd_review_broker.integrations import files
from gsd_review_broker.integrations.clients import setup
from gsd_review_broker.integrations.clients.gsd_capability import capability_setup
from gsd_review_broker.integrations.clients.setup import Choice, Client, ClientFile, ClientSetup, Environment, Scope
from gsd_review_broker.integrations.formats import ConfigEntry

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
        kind = "as a plugin of" if self.is_plugin else "for"
        return f"{self.line} {self.version} {kind} {RUNTIME_NAMES[self.runtime]} in {self.folder}"

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
    """Return the project's own first: it is the one that runs there."""
    scopes = [scope for scope in Scope if scope is Scope.USER or around.root]
    below = [one for runtime in RUNTIMES for scope in scopes for one in _below(runtime, scope, around)]
    everywhere = [*below, *_plugins(around)]
    return tuple(one for scope in scopes for one in everywhere if one.scope is scope)


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
    """Return one printable word; GSD writes it there at every installation."""
    with suppress(OSError, UnfitFileError):
        return _shown(read_regular(file).decode("utf-8", "replace"))
    return _UNKNOWN


def _shown(version: str) -> str:
    words = version.split()
    return words[0][:_LONGEST_VERSION] if words and words[0].isprintable() else _UNKNOWN


NAME = "gsd"
SKILL = "tandem-review"
# `gsd-checker` is what 1.32 calls the plan-checker.
AGENTS = (
    "gsd-planner", "gsd-plan-checker", "gsd-checker", "gsd-executor", "gsd-debugger", "gsd-verifier", "gsd-code-fixer",
)  # fmt: skip
_WIRING = "agent_skills"
_LATER = (
    "GSD has no project here yet. After GSD's new-project, its agents get the skill when the next session starts, or "
    "when you run tandem install gsd again."
)


def project_config(root: Path) -> Path:
    """GSD's configuration of a project. We add to it, and never create it: GSD would not fill in what is missing."""
    return root / ".planning" / "config.json"


def _more(choice: Choice, around: Environment) -> ClientSetup:
    installed = installed_gsd(around)
    runtimes = _runtimes(choice, installed)
    assets = tuple(asset for runtime in runtimes for asset in _skill(runtime, choice.scope, around))
    hooks = tuple(_hook(runtime, choice, around) for runtime in runtimes)
    if choice.scope is Scope.PROJECT:
        wiring, notes = _project_wiring(runtimes, around)
    else:
        wiring, notes = _account_wiring(runtimes, installed, around)
    capability = _capability(choice, runtimes, installed, around)
    seen = tuple(
        f"{one}: work with it as before. tandem gsd status shows what applies."
        for one in installed
        if one.runtime in runtimes
    )
    trust = ("Codex runs the hook that starts the broker once you have trusted it.",) if "codex" in runtimes else ()
    return ClientSetup(
        documents=(*hooks, *wiring, *capability.documents),
        assets=(*assets, *capability.assets),
        notes=(*seen, *notes, *capability.notes, *trust),
    )


def _capability(
    choice: Choice, runtimes: tuple[Runtime, ...], installed: tuple[InstalledGsd, ...], around: Environment
) -> ClientSetup:
    """Set it up in projects only: if the account has one of the same name, GSD refuses the project's."""
    able = [one.runtime for one in installed if one.runtime in runtimes and one.knows_capabilities]
    if not able:
        return ClientSetup()
    if choice.scope is not Scope.PROJECT:
        return ClientSetup(
            notes=("gsd-core's gates and its lane --tandem are a project's: run tandem install gsd in it.",)
        )
    return capability_setup(choice.tandem, f".{able[0]}/skills/{SKILL}/SKILL.md", around)


def _runtimes(choice: Choice, installed: tuple[InstalledGsd, ...]) -> tuple[Runtime, ...]:
    wanted: frozenset[str] = frozenset(choice.runtimes) or frozenset(one.runtime for one in installed)
    runtimes: list[Runtime] = [runtime for runtime in RUNTIMES if runtime in wanted]
    if not runtimes:
        raise BrokerError(
            Code.NOT_FOUND,
            "GSD is not installed here: there is neither get-shit-done nor gsd-core below .claude or .codex, nor "
            "gsd-core as a plugin of Claude Code",
            "Install GSD first, or name the client that it runs in with --runtime.",
        )
    return tuple(runtimes)


def _skill(runtime: Runtime, scope: Scope, around: Environment) -> tuple[ClientFile, ...]:
    return setup.assets_below(runtime_folder(runtime, scope, around), (setup.review_skill(runtime),))


def _hook(runtime: Runtime, choice: Choice, around: Environment) -> ClientFile:
    """Return the hook, which names this account's program: a project's is personal, unless it is to be shared."""
    folder = runtime_folder(runtime, choice.scope, around)
    is_personal = choice.scope is Scope.PROJECT and not choice.shared
    name = "hooks.json" if runtime == "codex" else "settings.local.json" if is_personal else "settings.json"
    command = shlex.join([choice.tandem, "gsd", "session-start"])
    entry = ConfigEntry(path=("hooks", "SessionStart"), value=setup.hook(command), in_list=True)
    return ClientFile(path=folder / name, entries=(entry,), personal=is_personal)


def _project_wiring(
    runtimes: tuple[Runtime, ...], around: Environment
) -> tuple[tuple[ClientFile, ...], tuple[str, ...]]:
    file = project_config(around.project())
    present = _read(file, within=around.project())
    if present is None:
        return (), (_LATER,)
    # One copy is enough, and each costs the agents' attention.
    runtime = present.get("runtime")
    reader = runtime if runtime in runtimes else runtimes[0]
    return _wired(file, present, f".{reader}/skills/{SKILL}")


def _account_wiring(
    runtimes: tuple[Runtime, ...], installed: tuple[InstalledGsd, ...], around: Environment
) -> tuple[tuple[ClientFile, ...], tuple[str, ...]]:
    """GSD copies these defaults into the configuration of each new project."""
    note = "For a project that GSD has set up already, run tandem install gsd in it."
    able = [one for one in installed if one.scope is Scope.USER and one.runtime in runtimes and one.knows_global_skills]
    if not able:
        return (), (f"This GSD reads skills of a project only. {note}",)
    file = around.home / ".gsd" / "defaults.json"
    wiring, notes = _wired(file, _read(file, within=None) or {}, f"global:{SKILL}")
    return wiring, (*notes, note)


def _wired(file: Path, present: dict[str, Any], skill: str) -> tuple[tuple[ClientFile, ...], tuple[str, ...]]:
    """Skip an agent whose skills the user gave as one string: our entry needs a list."""
    section = present.get(_WIRING, {})
    known = cast("dict[str, Any]", section) if isinstance(section, dict) else None
    fitting = [] if known is None else [name for name in AGENTS if isinstance(known.get(name, []), list)]
    entries = tuple(ConfigEntry(path=(_WIRING, name), value=skill, in_list=True) for name in fitting)
    others = [name for name in AGENTS if name not in fitting]
    notes = tuple(
        f"{file}: {_WIRING}.{name} is not a list, so {name} does not get the skill. Make it one: "
        f"[{json.dumps((known or {}).get(name))}]"
        for name in others
    )
    return ((ClientFile(path=file, entries=entries),) if entries else ()), notes


def _read(file: Path, *, within: Path | None) -> dict[str, Any] | None:
    """Read what can be read. A mistake is reported, with its place, when the file is changed."""
    content = files.read(file, within=within).content
    if content is None:
        return None
    try:
        value = json.loads(content.decode("utf-8-sig"))
    except ValueError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


CLIENT = Client(name=NAME, full_name="GSD", server=None, more=_more)
