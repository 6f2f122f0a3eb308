"""GSD's plans: which of them are active, and whether their content is approved.

A plan is active while its phase is the current one and it has no summary yet. GSD's own files say both.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gsd_review_broker.domain.gate.decision import Because, Commit, Covered, without_exempt
from gsd_review_broker.domain.gate.ledger import Origin, ReviewedChange
from gsd_review_broker.domain.gate.policy import GatePolicy
from gsd_review_broker.domain.gate.records import Entry
from gsd_review_broker.domain.gate.refusal import shown_path

_PLAN, _SUMMARY = "PLAN.md", "SUMMARY.md"
_NUMBER = r"\d+[A-Za-z]?(?:\.\d+)*"
# In the order in which GSD believes them: the front matter, the field of older versions, the line in the text.
_CURRENT = tuple(
    re.compile(rf"^[ \t]*(?:\*\*)?{name}(?:\*\*)?:(?:\*\*)?[ \t]*[\"']?({_NUMBER})", re.MULTILINE)
    for name in ("current_phase", "Current Phase", "Phase")
)
# A project may have a code of its own before the number: `03-parse`, `SHOP-03-parse`.
_FOLDER = re.compile(rf"(?:[A-Z][A-Z0-9]*-)?({_NUMBER})(?:-|$)")
_MOST_APPROVALS = 500
# These were held back where they came from, or a person let them through.
_FREE = frozenset({Because.MERGE, Because.OVERRIDE, Because.EXEMPT, Because.EMPTY})


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanVersion:
    """A plan as it is now, by its path in the repository. Its content may have two ids: git stores lines that end with
    CR LF as they are, or without CR."""

    path: bytes
    entries: tuple[Entry, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanStanding:
    plan: PlanVersion
    # The approved reviews that end with exactly this content.
    reviews: tuple[str, ...]

    @property
    def is_approved(self) -> bool:
        return bool(self.reviews)

    @property
    def name(self) -> str:
        return shown_path(self.plan.path)

    def facts(self) -> dict[str, Any]:
        return {"plan": self.name, "approved": self.is_approved, "reviews": list(self.reviews)}


class PathApprovals(Protocol):
    def approvals_on_path(self, path: bytes, limit: int) -> list[ReviewedChange]: ...


def current_phase(state: str) -> str | None:
    """By GSD's STATE.md; None where it names no phase."""
    for pattern in _CURRENT:
        match = pattern.search(state)
        if match:
            return _plain(match[1])
    return None


def is_of_phase(folder: str, phase: str) -> bool:
    match = _FOLDER.match(folder)
    return match is not None and _plain(match[1]) == phase


def _plain(number: str) -> str:
    """GSD writes `03` and `3` for the same phase."""
    return number.lstrip("0") or "0"


def unfinished_plans(names: Iterable[str]) -> list[str]:
    """Of the files in a phase's folder: the plans that have no summary."""
    known = set(names)
    plans = sorted(name for name in known if is_plan(name))
    return [name for name in plans if name.removesuffix(_PLAN) + _SUMMARY not in known]


def is_plan(name: str) -> bool:
    return name == _PLAN or name.endswith(f"-{_PLAN}")


def standing_of(kept: PathApprovals, plan: PlanVersion, origin: Origin, policy: GatePolicy) -> PlanStanding:
    """Content decides: where the plan was before, and whether git has it, does not matter."""
    approvals = [
        change.approval()
        for change in kept.approvals_on_path(plan.path, _MOST_APPROVALS)
        if change.origin.is_same(origin)
    ]
    reviews = [
        approval.review_id
        for approval in approvals
        if approval.steps[plan.path].new in plan.entries and (approval.by_person or not policy.needs_person(plan.path))
    ]
    return PlanStanding(plan=plan, reviews=tuple(sorted(reviews)))


def held_back(
    commits: Sequence[Commit], covered: dict[str, Covered], plans: Iterable[PlanStanding], policy: GatePolicy
) -> list[Commit]:
    """The commits with code in them that must not land before these plans are approved."""
    if not policy.plan_first or all(plan.is_approved for plan in plans):
        return []
    return [commit for commit in commits if _has_code(commit, policy) and not _is_free(covered.get(commit.id))]


def _is_free(covered: Covered | None) -> bool:
    return covered is not None and covered.because in _FREE


def _has_code(commit: Commit, policy: GatePolicy) -> bool:
    """A commit that records plans alone is judged by their own approvals."""
    names = (path.rpartition(b"/")[2].decode("utf-8", "replace") for path in without_exempt(commit.steps, policy))
    return any(not is_plan(name) for name in names)
