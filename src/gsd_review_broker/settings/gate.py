"""The gate's policy: the section `gate` of every source that has one. The strictest values apply.

The user's and the project's file say what is guarded. The environment (BROKER_GATE__MODE, …), the file that
BROKER_CONFIG or --config names, and the last answer of a broker on another machine can only tighten that, because the
program that commits chooses its environment. The hook, the broker, `tandem gate` and `tandem config` all decide by this
module. It imports little: the git hook reads it when no broker answers.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from gsd_review_broker.domain.gate.policy import (
    LISTS,
    PLAN_FIRST,
    PROBLEM,
    GatePolicy,
    check_section,
    stricter,
    tightened,
    unreadable,
)

CONFIG_VARIABLE = "BROKER_CONFIG"
_PREFIX = "BROKER_GATE__"
_TRUTHS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
# In the installation: the mode in which a broker on another machine answered last.
_MODE_FILE = "mode"

File = str | Path


class GateSource(NamedTuple):
    origin: str
    section: dict[str, Any]


def read_policy(
    project_file: File | None,
    user_file: File | None,
    *,
    chosen: File | None = None,
    installation: File | None = None,
    environment: Mapping[str, str] | None = None,
) -> GatePolicy:
    """Return the policy of all sources. Never raises: for configuration that cannot be read, the strictest policy
    applies. `installation` is the gate's folder where a broker on another machine decides."""
    return explained_policy(project_file, user_file, chosen=chosen, installation=installation, environment=environment)[
        0
    ]


def explained_policy(
    project_file: File | None,
    user_file: File | None,
    *,
    chosen: File | None = None,
    installation: File | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[GatePolicy, dict[str, Any], dict[str, str]]:
    """Return the policy, its values in the spelling of a file, and the origin of each that is not the default."""
    try:
        files = [GateSource(str(file), _section(Path(file))) for file in (user_file, project_file) if file]
        tightening = [*_tightening(chosen, environment), *_answered(installation)]
        policy = _joined(files, tightening)
    except (OSError, ValueError, RecursionError) as error:
        policy, files, tightening = unreadable(str(error)), [], []
    values = {
        "mode": policy.mode,
        "branches": list(policy.branches),
        "exempt_paths": _common_lines([patterns.lines for patterns in policy.exempt]),
        "human_paths": [line for patterns in policy.human for line in patterns.lines],
        "override": policy.override,
        PLAN_FIRST: policy.plan_first,
    }
    if policy.problem is not None:
        return policy, values, dict.fromkeys(("mode", "exempt_paths"), policy.problem)
    origins = {name: _origin([*files, *tightening], name, value) for name, value in values.items()}
    return policy, values, {name: origin for name, origin in origins.items() if origin}


def _common_lines(lists: list[tuple[str, ...]]) -> list[str]:
    """Join the lists into one: what every list names, without what any of them takes out."""
    lines = dict.fromkeys(line for each in lists for line in each)
    return [line for line in lines if line.startswith("!") or all(line in each for each in lists)]


def _origin(sources: list[GateSource], name: str, value: Any) -> str:
    """Name every source that adds to a list; of another value the first source that demands it."""
    naming = [source for source in sources if name in source.section]
    if name in LISTS:
        return " and ".join(source.origin for source in naming) if value else ""
    return next((source.origin for source in naming if source.section[name] == value), "")


def demands(environment: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return what the environment demands of the gate, for a broker that does not see it."""
    try:
        return [source.section for source in _tightening(None, environment) if source.section]
    except (OSError, ValueError, RecursionError) as error:
        return [{PROBLEM: str(error)}]


def read_policy_file(path: Path) -> GatePolicy:
    """Read a policy by itself, or a configuration file's section `gate`. Raises OSError or ValueError."""
    content = _object(path)
    return stricter(_inside(path, content) if "gate" in content else content)


def _joined(files: list[GateSource], tightening: list[GateSource]) -> GatePolicy:
    """Raises ValueError, which names the source."""
    for source in (*files, *tightening):
        try:
            check_section(source.section)
        except ValueError as error:
            raise ValueError(f"{source.origin}: {error}") from error
    policy = stricter(*(source.section for source in files))
    for source in tightening:
        policy = tightened(policy, source.section)
    return policy


def _tightening(chosen: File | None, environment: Mapping[str, str] | None) -> list[GateSource]:
    environment = os.environ if environment is None else environment
    sources = [GateSource("environment", _of_environment(environment))]
    file = chosen or environment.get(CONFIG_VARIABLE)
    if file:
        # Unlike the usual files, this one has to be there.
        sources.append(GateSource(str(file), _inside(Path(file), _object(Path(file)))))
    return sources


def _of_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    section: dict[str, Any] = {}
    for variable, text in environment.items():
        if not variable.startswith(_PREFIX):
            continue
        name = variable.removeprefix(_PREFIX).lower()
        if name in LISTS:
            section[name] = [word.strip() for word in text.split(",") if word.strip()]
        else:
            section[name] = _TRUTHS.get(text.lower(), text) if name == PLAN_FIRST else text
    return section


def _answered(installation: File | None) -> list[GateSource]:
    if installation is None:
        return []
    path = Path(installation, _MODE_FILE)
    try:
        return [GateSource(str(path), {"mode": path.read_text("ascii").strip()})]
    except FileNotFoundError:
        return []


def _section(path: Path) -> dict[str, Any]:
    try:
        return _inside(path, _object(path))
    except FileNotFoundError:
        return {}


def _inside(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    section = content.get("gate", {})
    if not isinstance(section, dict):
        raise ValueError(f"{path}: gate is not an object")  # noqa: TRY004 - what is wrong is the file
    return cast("dict[str, Any]", section)


def _object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        # The gate reads several files; the reader of the message has to know which one to fix.
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: the file is not a JSON object")  # noqa: TRY004 - the caller handles ValueError
    return cast("dict[str, Any]", content)
