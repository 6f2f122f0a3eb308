"""GSD: a skill for its agents, beside GSD's own files and never in them. GSD's updates leave it alone.

The skill is a file of ours. `agent_skills` in GSD's configuration, which is GSD's own means for it, names the agents
that read it. A hook at the start of a session starts the broker and repairs what is missing. gsd-core also gets a
capability (`gsd_capability`).
"""

import json
import shlex
from pathlib import Path
from typing import Any, cast

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.integrations import files
from gsd_review_broker.integrations.clients import texts
from gsd_review_broker.integrations.clients.gsd_capability import capability_setup
from gsd_review_broker.integrations.clients.hooks import hook
from gsd_review_broker.integrations.clients.setup import Asset, Choice, Client, ClientFile, ClientSetup, assets_below
from gsd_review_broker.integrations.environment import Environment, Scope
from gsd_review_broker.integrations.formats.entries import Entry
from gsd_review_broker.integrations.gsd_found import RUNTIMES, InstalledGsd, Runtime, installed_gsd, runtime_folder

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
    """GSD's configuration of a project. We add to it, and never make it: GSD would then keep it as it is."""
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
        f"{one}: work with it as before. tandem gsd status shows what counts."
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
    """In projects only: of two with one name, in the account and in the project, GSD would refuse the second."""
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


def _skill(runtime: Runtime, scope: Scope, around: Environment) -> tuple[Asset, ...]:
    return assets_below(runtime_folder(runtime, scope, around), (texts.review_skill(runtime),))


def _hook(runtime: Runtime, choice: Choice, around: Environment) -> ClientFile:
    """In a project it is personal, unless it is to be shared: the program's place is that of this account."""
    folder = runtime_folder(runtime, choice.scope, around)
    is_personal = choice.scope is Scope.PROJECT and not choice.shared
    name = "hooks.json" if runtime == "codex" else "settings.local.json" if is_personal else "settings.json"
    command = shlex.join([choice.tandem, "gsd", "session-start"])
    entry = Entry(path=("hooks", "SessionStart"), value=hook(command), in_list=True)
    return ClientFile(path=folder / name, format="json", entries=(entry,), personal=is_personal)


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
    """An agent whose skills the user gave as one string is left alone: our entry needs a list."""
    section = present.get(_WIRING, {})
    known = cast("dict[str, Any]", section) if isinstance(section, dict) else None
    fitting = [] if known is None else [name for name in AGENTS if isinstance(known.get(name, []), list)]
    entries = tuple(Entry(path=(_WIRING, name), value=skill, in_list=True) for name in fitting)
    others = [name for name in AGENTS if name not in fitting]
    notes = tuple(
        f"{file}: {_WIRING}.{name} is not a list, so {name} does not get the skill. Make it one: "
        f"[{json.dumps((known or {}).get(name))}]"
        for name in others
    )
    return ((ClientFile(path=file, format="json", entries=entries),) if entries else ()), notes


def _read(file: Path, *, within: Path | None) -> dict[str, Any] | None:
    """Whether it is valid is found out when it is changed, with the place of the mistake."""
    content = files.read(file, within=within).content
    if content is None:
        return None
    try:
        value = json.loads(content.decode("utf-8-sig"))
    except ValueError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


CLIENT = Client(name=NAME, full_name="GSD", server=None, more=_more)
