"""What a project's file may not set once git tracks it: then it may have come with the repository.

It may tighten the user's settings and never loosen them: no prompt for reviewers, no weaker fence, no larger limit.
"""

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from gsd_review_broker.settings.problems import POOL, Problem

_POOL_TEMPLATE = ("reviewer_pool", "prompt_template_path")
_FORBIDDEN = (("fence",), _POOL_TEMPLATE)
_POOL_AT_MOST = (
    *("max_pool_size", "max_spawns_per_day", "max_tokens_per_day", "max_ttl_seconds", "idle_timeout_seconds"),
    *("claim_timeout_seconds", "kill_grace_seconds"),
)
_POOL_AT_LEAST = ("spawn_cooldown_seconds", "scaling_ratio", "background_check_interval_seconds")
# Values that skip a review, or that go on without one.
_LAX: dict[tuple[str, ...], Any] = {
    ("review", "enabled"): False,
    ("review", "fail_mode"): "open",
    ("review", "required_gates", "plan"): False,
    ("review", "required_gates", "execute"): False,
    ("review", "required_gates", "verify"): False,
    ("execution_mode",): "optimistic",
}
_AT_MOST = ("max_rounds", "git_timeout_seconds", "log_file_bytes", "log_file_count")

# The value without the project's file; None for no limit.
Usual = Callable[[tuple[str, ...]], Any]


def tightened(path: Path, values: dict[str, Any], usual: Usual) -> tuple[dict[str, Any], list[Problem]]:
    """The file's values without those that loosen something, and a message about each of those."""
    kept = copy.deepcopy(values)
    problems: list[Problem] = []
    for key, why in _loosening(kept, usual):
        del _value(kept, key[:-1])[key[-1]]
        problems.append(
            Problem(
                feature=POOL if key[0] == POOL else key[0],
                message=f"{path}: {'.'.join(key)}: {why}; git tracks this file, so it may have come with the "
                "repository, and it may only tighten your settings",
                fix=f"Set {'.'.join(key)} in your own configuration file, or remove it from this one.",
            )
        )
    return kept, problems


def _loosening(values: dict[str, Any], usual: Usual) -> Iterator[tuple[tuple[str, ...], str]]:
    for key in _FORBIDDEN:
        if _value(values, key) is not None:
            yield key, "is not taken from this file"
    for key, lax in _LAX.items():
        if _value(values, key) == lax != usual(key):
            yield key, f"{json.dumps(lax)} is less strict than {json.dumps(usual(key))}, which counts for you"
    for key, is_maximum in list(_numbers(values)):
        value, counts = _value(values, key), usual(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not isinstance(counts, int | float):
            continue
        if value > counts if is_maximum else value < counts:
            yield key, f"{value} is {'more' if is_maximum else 'less'} than {counts}, which counts for you"


def _numbers(values: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], bool]]:
    yield from (((name,), True) for name in _AT_MOST)
    yield from (((POOL, name), True) for name in _POOL_AT_MOST)
    yield from (((POOL, name), False) for name in _POOL_AT_LEAST)
    limits = values.get("limits")
    if isinstance(limits, dict):
        yield from ((("limits", name), True) for name in cast("dict[str, Any]", limits))


def _value(values: Mapping[str, Any], key: tuple[str, ...]) -> Any:
    here: Any = values
    for name in key:
        here = cast("Mapping[str, Any]", here).get(name) if isinstance(here, dict) else None
    return here
