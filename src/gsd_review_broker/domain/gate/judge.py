"""The one judge of the gate: may these commits land, and if not, what has to be done?

The broker asks it, the hook without a broker, the command line, a check of receipts, and the broker that leaves a
ticket. They differ in where approvals are kept. A rule that is added to RULES holds for all of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gsd_review_broker.domain.gate.decision import (
    Because,
    Commit,
    Covered,
    GateOverride,
    LandedCommit,
    RepositoryId,
    ReviewedChange,
    decide,
    may_cover,
    without_exempt,
)
from gsd_review_broker.domain.gate.policy import GatePolicy, Mode, Override
from gsd_review_broker.domain.gate.records import Steps, parse_records
from gsd_review_broker.domain.gate.refusal import (
    Nearest,
    Refusal,
    files_of,
    plan_refusal_text,
    refusal_text,
    shown_path,
)
from gsd_review_broker.domain.gate.request import Asker, GateRequest, PlanVersion, is_plan
from gsd_review_broker.domain.model import Milliseconds

# What is looked up for one question, and how many approvals of one place are considered. The message tells what lies
# beyond.
_MOST_LOOKUPS = 20_000
_MOST_IN_ONE_PLACE = 500
_MOST_APPROVALS = 1_000
_MOST_OVERRIDES = 50
NOT_ALL = "Only the newest approvals of these paths were looked at. If yours is older, propose the change as it is now."
# These waited for their plans where they came from.
_NEED_NO_PLAN = frozenset({Because.MERGE, Because.EXEMPT, Because.EMPTY})


class Approvals(Protocol):
    """Where approvals are kept: the broker's store, its file, receipts. The newest come first."""

    def approvals_beginning_at(self, path: bytes, old_id: bytes, limit: int) -> list[ReviewedChange]: ...

    def approvals_on_path(self, path: bytes, limit: int) -> list[ReviewedChange]: ...

    def overrides_valid_at(self, moment: Milliseconds, limit: int) -> list[GateOverride]: ...

    def landed_commit(self, folder: str, commit_id: str) -> LandedCommit | None: ...


class ApprovalsAtHand:
    """Approvals that are known without a database; and the commits that an override let through."""

    def __init__(self, changes: Sequence[ReviewedChange] = (), landed: Sequence[LandedCommit] = ()) -> None:
        self._changes = [(change, parse_records(change.records)) for change in changes]
        self._landed = {commit.commit_id: commit for commit in landed}

    def approvals_beginning_at(self, path: bytes, old_id: bytes, limit: int) -> list[ReviewedChange]:
        here = (change for change, steps in self._changes if path in steps and steps[path].old.object_id == old_id)
        return list(here)[:limit]

    def approvals_on_path(self, path: bytes, limit: int) -> list[ReviewedChange]:
        return [change for change, steps in self._changes if path in steps][:limit]

    def overrides_valid_at(self, moment: Milliseconds, limit: int) -> list[GateOverride]:
        return []

    def landed_commit(self, folder: str, commit_id: str) -> LandedCommit | None:
        return self._landed.get(commit_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanApproval:
    """One of GSD's plans, and the approved reviews that end with exactly its content."""

    plan: PlanVersion
    reviews: tuple[str, ...]

    @property
    def is_approved(self) -> bool:
        return bool(self.reviews)

    @property
    def name(self) -> str:
        return shown_path(self.plan.path)

    def facts(self) -> dict[str, Any]:
        return {"plan": self.name, "approved": self.is_approved, "reviews": list(self.reviews)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """What a rule looks at. The commits that an override lets through are left out: a person has decided."""

    commits: tuple[Commit, ...]
    covered: Mapping[str, Covered]
    plans: tuple[PlanApproval, ...]
    request: GateRequest
    policy: GatePolicy


@dataclass(frozen=True, kw_only=True, slots=True)
class Objection:
    """Commits that must not land. Without a text of its own, the refusal names the reviews that are missing."""

    commits: tuple[Commit, ...]
    text: str = ""
    # The plans that have to be approved first.
    plans: tuple[str, ...] = ()


def plan_first(case: Case) -> Objection | None:
    """Code waits for GSD's active plans; whether the code itself is approved is a question for later."""
    plans = tuple(plan.name for plan in case.plans if not plan.is_approved)
    if not case.policy.plan_first or not plans or case.request.asker is not Asker.HOOK:
        return None
    held = tuple(commit for commit in case.commits if _needs_plan(commit, case))
    if not held:
        return None
    return Objection(commits=held, text=plan_refusal_text(held, plans, case.request.root, case.policy), plans=plans)


def _needs_plan(commit: Commit, case: Case) -> bool:
    """Say whether a commit has code. One with nothing but plans is judged by their own approvals."""
    covered = case.covered.get(commit.id)
    if covered is not None and covered.because in _NEED_NO_PLAN:
        return False
    names = (path.rpartition(b"/")[2].decode("utf-8", "replace") for path in without_exempt(commit.steps, case.policy))
    return any(not is_plan(name) for name in names)


def approved_review(case: Case) -> Objection | None:
    missing = tuple(commit for commit in case.commits if commit.id not in case.covered)
    return Objection(commits=missing) if missing else None


Rule = Callable[[Case], Objection | None]
# The first that objects gives the message.
RULES: tuple[Rule, ...] = (plan_first, approved_review)


@dataclass(frozen=True, kw_only=True, slots=True)
class GateAnswer:
    outcome: str
    mode: Mode
    # What covers each commit, also where a rule objects to it.
    covered: Mapping[str, Covered]
    refusals: tuple[Refusal, ...] = ()
    text: str = ""
    override: GateOverride | None = None
    plans: tuple[PlanApproval, ...] = ()
    # The plans that hold commits back.
    missing_plans: tuple[str, ...] = ()

    def landing(self) -> dict[str, Covered]:
        """Map the commits that may land to what covers them."""
        refused = {refusal.commit.id for refusal in self.refusals}
        return {commit: covered for commit, covered in self.covered.items() if commit not in refused}

    def as_json(self, commits: Sequence[Commit]) -> dict[str, Any]:
        refused = {refusal.commit.id: refusal for refusal in self.refusals}
        return {
            "outcome": self.outcome,
            "mode": self.mode.value,
            "message": self.text,
            "commits": [_row(commit, self.covered.get(commit.id), refused.get(commit.id)) for commit in commits],
            "plans": [one.facts() for one in self.plans],
        }


def _row(commit: Commit, covered: Covered | None, refusal: Refusal | None) -> dict[str, Any]:
    is_covered = covered is not None and refusal is None
    row: dict[str, Any] = {"commit": commit.id, "subject": commit.subject, "covered": is_covered}
    if covered is not None:
        row |= {"because": covered.because.value, "reviews": list(covered.reviews)}
    if refusal is not None:
        near = refusal.nearest
        row |= {"files": list(refusal.files), "next": refusal.next_command}
        row["nearest"] = {"review_id": near.review_id, "standing": near.standing} if near else None
    return row


def judge(
    kept: Approvals,
    request: GateRequest,
    policy: GatePolicy,
    now: Milliseconds,
    *,
    known: Mapping[str, Covered] | None = None,
    unrecorded: Mapping[str, Milliseconds] | None = None,
    nearest: Callable[[Commit], Nearest | None] = lambda _commit: None,
    notes: Sequence[str] = (),
) -> GateAnswer:
    """Answer a question to the gate.

    `known` are commits that something else covers: an approval that carried over, a receipt. `unrecorded` says when
    commits landed of which `kept` has not been told. `nearest` finds the review that comes closest to a commit, and
    `notes` end the message of a refusal."""
    if is_off(request, policy):
        return GateAnswer(outcome="pass", mode=policy.mode, covered={})
    approved, is_complete = _approved(kept, request, policy)
    covered = {**(known or {}), **approved}
    missing = [commit.id for commit in request.commits if commit.id not in covered]
    override, overridden = _overridden(kept, request, policy, now, missing, unrecorded or {})
    covered |= dict.fromkeys(overridden, Covered(because=Because.OVERRIDE))
    case = Case(
        commits=tuple(commit for commit in request.commits if not _is_free(covered.get(commit.id))),
        covered=covered,
        plans=tuple(plan_approval(kept, plan, request.origin, policy) for plan in request.plans),
        request=request,
        policy=policy,
    )
    passed = GateAnswer(outcome="pass", mode=policy.mode, covered=covered, override=override, plans=case.plans)
    objections = [objection for rule in RULES if (objection := rule(case)) is not None]
    return _refused(passed, case, objections, nearest, notes if is_complete else dict.fromkeys((NOT_ALL, *notes)))


def _is_free(covered: Covered | None) -> bool:
    return covered is not None and covered.because is Because.OVERRIDE


def is_off(request: GateRequest, policy: GatePolicy) -> bool:
    """Say whether the gate asks nothing of this caller. `check` and `status` are answered in every mode."""
    return policy.mode is Mode.OFF and request.asker is Asker.HOOK


def _refused(
    passed: GateAnswer,
    case: Case,
    objections: Sequence[Objection],
    nearest: Callable[[Commit], Nearest | None],
    notes: Iterable[str],
) -> GateAnswer:
    if not objections:
        return passed
    first, is_asked_by_hook = objections[0], case.request.asker is Asker.HOOK
    refused = {commit.id: commit for objection in objections for commit in objection.commits}
    refusals = tuple(
        Refusal(
            commit=commit,
            files=files_of(commit, case.policy),
            nearest=None if first.text else nearest(commit),
            has_landed=not is_asked_by_hook,
        )
        for commit in refused.values()
    )
    note = "\n".join(notes)
    return replace(
        passed,
        outcome="warn" if is_asked_by_hook and case.policy.mode is not Mode.BLOCK else "refuse",
        refusals=refusals,
        text=first.text or refusal_text(refusals[: len(first.commits)], case.policy, note=note),
        missing_plans=first.plans,
    )


def _approved(kept: Approvals, request: GateRequest, policy: GatePolicy) -> tuple[dict[str, Covered], bool]:
    """Find what approvals cover, and whether all of them were looked at. The first look is enough for most commits."""
    covered: dict[str, Covered] = {}
    candidates = Candidates(changes=(), is_complete=True)
    for thorough in (False, True):
        candidates = candidates_for(kept, request.commits, policy, request.origin, thorough=thorough)
        covered = decide(request.commits, [change.approval() for change in candidates.changes], policy)
        if len(covered) == len(request.commits):
            return covered, True
    return covered, candidates.is_complete


def _overridden(
    kept: Approvals,
    request: GateRequest,
    policy: GatePolicy,
    now: Milliseconds,
    missing: Sequence[str],
    unrecorded: Mapping[str, Milliseconds],
) -> tuple[GateOverride | None, list[str]]:
    """Find the override that is valid now, and the commits that one let through. An override applies to what lands
    while it is valid, and to nothing else."""
    if request.asker is Asker.HOOK:
        override = _valid_override(kept, request.origin, policy, now)
        return override, [*missing] if override else []
    return None, [
        commit
        for commit in missing
        if _landed_by_override(kept, request.origin.folder, commit)
        or (commit in unrecorded and _valid_override(kept, request.origin, policy, unrecorded[commit]))
    ]


def _valid_override(
    kept: Approvals, origin: RepositoryId, policy: GatePolicy, moment: Milliseconds
) -> GateOverride | None:
    if policy.override is Override.NOBODY:
        return None
    valid = kept.overrides_valid_at(moment, _MOST_OVERRIDES)
    return next((one for one in valid if RepositoryId(root=one.repository, folder=one.folder).is_same(origin)), None)


def _landed_by_override(kept: Approvals, folder: str, commit_id: str) -> bool:
    landed = kept.landed_commit(folder, commit_id)
    return landed is not None and landed.because is Because.OVERRIDE


def plan_approval(kept: Approvals, plan: PlanVersion, origin: RepositoryId, policy: GatePolicy) -> PlanApproval:
    """Find the reviews that approved a plan as it is now. Content decides: where the plan was before, and whether git
    has it, does not matter."""
    approvals = [
        change.approval()
        for change in kept.approvals_on_path(plan.path, _MOST_IN_ONE_PLACE)
        if change.origin.is_same(origin)
    ]
    reviews = [
        approval.review_id
        for approval in approvals
        if approval.steps[plan.path].new in plan.entries and may_cover(approval, (plan.path,), policy)
    ]
    return PlanApproval(plan=plan, reviews=tuple(sorted(reviews)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """Newest first. Not complete: there are older approvals that were not looked at."""

    changes: tuple[ReviewedChange, ...]
    is_complete: bool


def candidates_for(
    kept: Approvals, commits: Sequence[Commit], policy: GatePolicy, origin: RepositoryId, *, thorough: bool
) -> Candidates:
    """Find this repository's approvals that may cover the commits: along the blobs, from what each begins with. If not
    thorough, by one path of each commit, which is enough where a commit is one whole review."""
    guarded = [without_exempt(commit.steps, policy) for commit in commits]
    places = [
        (path, step.old.object_id) for steps in guarded for path, step in sorted(steps.items())[: _depth(thorough)]
    ]
    matching: dict[str, ReviewedChange] = {}
    seen: set[tuple[bytes, bytes]] = set()
    is_complete = True
    while places and len(seen) < _MOST_LOOKUPS and len(matching) < _MOST_APPROVALS:
        place = places.pop()
        if place in seen:
            continue
        seen.add(place)
        changes = kept.approvals_beginning_at(*place, _MOST_IN_ONE_PLACE)
        is_complete = is_complete and len(changes) < _MOST_IN_ONE_PLACE
        for change in changes:
            if change.review_id in matching or not change.origin.is_same(origin):
                continue
            matching[change.review_id] = change
            if thorough:
                places += [(path, step.new.object_id) for path, step in parse_records(change.records).items()]
    ordered = sorted(matching.values(), key=lambda change: (-(change.approved_at or 0), change.review_id))
    return Candidates(changes=tuple(ordered), is_complete=is_complete and not places)


def _depth(thorough: bool) -> int | None:
    return None if thorough else 1


def of_same_paths(kept: Approvals, steps: Steps, origin: RepositoryId, policy: GatePolicy) -> Candidates:
    """Find approvals of exactly these paths, whatever their content. Those that have not landed come first."""
    changes = kept.approvals_on_path(min(steps), _MOST_IN_ONE_PLACE)
    same = [
        change
        for change in changes
        if change.origin.is_same(origin)
        and without_exempt(parse_records(change.records), policy).keys() == steps.keys()
    ]
    same.sort(key=lambda change: (change.landed_at is not None, -(change.approved_at or 0)))
    return Candidates(changes=tuple(same), is_complete=len(changes) < _MOST_IN_ONE_PLACE)
