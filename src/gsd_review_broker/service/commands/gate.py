"""The gate's questions: may these commits land, which review is nearest, and what has landed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from gsd_review_broker.domain.gate import search
from gsd_review_broker.domain.gate.decision import Because, Commit, Covered, decide, without_exempt
from gsd_review_broker.domain.gate.ledger import GateOverride, LandedCommit, Origin, ReviewedChange
from gsd_review_broker.domain.gate.plans import PlanStanding, held_back, standing_of
from gsd_review_broker.domain.gate.policy import GatePolicy, Mode, Override, strictest
from gsd_review_broker.domain.gate.records import Steps, digest_of_sorted, parse_records, raw_records
from gsd_review_broker.domain.gate.refusal import Refusal, files_of, plan_refusal_text, refusal_text
from gsd_review_broker.domain.gate.request import Asker, GateRequest
from gsd_review_broker.domain.identity import BROKER, Identity, is_human
from gsd_review_broker.domain.model import EventType, Milliseconds, NewEvent, ReviewId
from gsd_review_broker.domain.rules import transitions
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.store import Reader, Transaction
from gsd_review_broker.service import validation
from gsd_review_broker.service.commands.nearest import nearest_review
from gsd_review_broker.service.core import Core
from gsd_review_broker.service.project_store import whole_broker_only
from gsd_review_broker.service.wire.encoding import iso

log = structlog.get_logger()

_MOST_CARRIED = 5
_NOT_ALL = (
    "Only the newest approvals of these paths were looked at. If yours is older, propose the change as it is now."
)
_CARRIED_OVER = "the approval carried over: another change had landed in the same files"
_MOST_SHOWN = 50
_MOST_OVERRIDES = 50
_LONGEST_OVERRIDE_MINUTES = 24 * 60

# The policy for a main work tree; None for a bare repository.
PolicyOf = Callable[[str | None], GatePolicy]


@dataclass(frozen=True, kw_only=True, slots=True)
class GateAnswer:
    outcome: str
    mode: Mode
    covered: dict[str, Covered]
    refusals: tuple[Refusal, ...]
    override: GateOverride | None
    text: str
    plans: tuple[PlanStanding, ...] = ()

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
    row: dict[str, Any] = {"commit": commit.id, "subject": commit.subject, "covered": covered is not None}
    if covered is not None:
        row |= {"because": covered.because.value, "reviews": list(covered.reviews)}
    if refusal is not None:
        near = refusal.nearest
        row |= {"files": list(refusal.files), "next": refusal.next_command}
        row["nearest"] = {"review_id": near.review_id, "standing": near.standing} if near else None
    return row


class Gate:
    def __init__(self, core: Core, policy_of: PolicyOf, *, serves: str) -> None:
        self._core = core
        self._policy_of = policy_of
        self._serves = serves
        self._began = core.clock.now()

    async def check(self, request: GateRequest) -> GateAnswer:
        """The answer is a snapshot: an approval that comes later counts for the next question."""
        root = await self._root_of(request.origin, request.root, is_elsewhere=request.is_elsewhere)
        policy = self._policy_for(root, request)
        if policy.mode is Mode.OFF and request.asker is Asker.HOOK:
            return GateAnswer(outcome="pass", mode=policy.mode, covered={}, refusals=(), override=None, text="")
        covered, override, notes = await self._covered(request, policy, root)
        plans = await self._plans(request, policy)
        passed = GateAnswer(
            outcome="pass", mode=policy.mode, covered=covered, refusals=(), override=override, text="", plans=plans
        )
        held = held_back(request.commits, covered, plans, policy) if request.asker is Asker.HOOK else []
        if held:
            return await self._held_back(request, policy, held, passed)
        missing = [commit for commit in request.commits if commit.id not in covered]
        if not missing:
            return passed
        refusals = await self._core.store.read(
            lambda reader: tuple(self._refusal(reader, commit, policy, request) for commit in missing)
        )
        if request.asker is not Asker.STATUS:
            await self._record_refusal(request, policy, refusals)
        outcome = "warn" if policy.mode is not Mode.BLOCK and request.asker is Asker.HOOK else "refuse"
        text = refusal_text(refusals, policy, note="\n".join(notes))
        return replace(passed, outcome=outcome, refusals=refusals, text=text)

    async def _plans(self, request: GateRequest, policy: GatePolicy) -> tuple[PlanStanding, ...]:
        if not request.plans:
            return ()
        return await self._core.store.read(
            lambda reader: tuple(standing_of(reader, plan, request.origin, policy) for plan in request.plans)
        )

    async def _held_back(
        self, request: GateRequest, policy: GatePolicy, held: Sequence[Commit], passed: GateAnswer
    ) -> GateAnswer:
        """The plan first: whether the code itself is approved is a question for later."""
        names = [plan.name for plan in passed.plans if not plan.is_approved]
        refusals = tuple(Refusal(commit=commit, files=files_of(commit, policy), nearest=None) for commit in held)
        await self._record_refusal(request, policy, refusals, plans=names)
        outcome = "refuse" if policy.mode is Mode.BLOCK else "warn"
        text = plan_refusal_text(held, names, request.root, policy)
        return replace(passed, outcome=outcome, refusals=refusals, text=text)

    async def _root_of(self, origin: Origin, root: str | None, *, is_elsewhere: bool) -> str | None:
        """The main work tree on this machine whose policy counts. A user's broker looks at no folder outside its
        allowed roots, and knows no work tree of a caller on another machine."""
        if self._serves == "user":
            return None if is_elsewhere or root is None else await self._core.repository.resolve_workspace(root)
        if is_elsewhere:
            own = await self._core.repository.root_commit(self._serves)
            if origin.root is None or origin.root != own:
                raise self._foreign(f"a repository with the root commit {origin.root or '(unknown)'}")
        elif root != self._serves:
            raise self._foreign(root or origin.folder)
        return self._serves

    def _foreign(self, asked: str) -> BrokerError:
        return BrokerError(
            Code.CONFLICT,
            f"this broker serves {self._serves}, not {asked}",
            "Run `tandem gate install` in the repository again. (A shallow clone has no root commit: run "
            "`git fetch --unshallow`.)",
        )

    def _policy_for(self, root: str | None, request: GateRequest) -> GatePolicy:
        """The caller's own files may be stricter."""
        policy = self._policy_of(root)
        return policy if request.mode is None else replace(policy, mode=strictest([policy.mode, request.mode]))

    async def _covered(
        self, request: GateRequest, policy: GatePolicy, root: str | None
    ) -> tuple[dict[str, Covered], GateOverride | None, list[str]]:
        """What is covered, by which override, and what was not looked at."""
        covered, _ = await self._core.store.read(lambda reader: _decided(reader, request, policy, thorough=False))
        is_complete = True
        if len(covered) < len(request.commits):
            covered, is_complete = await self._core.store.read(
                lambda reader: _decided(reader, request, policy, thorough=True)
            )
        for commit in request.commits:
            if commit.id not in covered:
                carried, looked_at_all = await self._carried(request, commit, policy, root)
                is_complete = is_complete and looked_at_all
                covered |= {commit.id: carried} if carried else {}
        notes = [] if is_complete else [_NOT_ALL]
        if request.asker is not Asker.HOOK:
            overridden = await self._core.store.read(lambda reader: _overridden(reader, request, covered))
            return covered | overridden, None, notes
        override = await self._core.store.read(lambda reader: self._valid_override(reader, request, policy))
        if override is not None:
            for commit in request.commits:
                covered.setdefault(commit.id, Covered(because=Because.OVERRIDE))
        return covered, override, notes

    def _valid_override(self, reader: Reader, request: GateRequest, policy: GatePolicy) -> GateOverride | None:
        """Now; or then, for a commit that landed while no broker was running. What landed since this broker began was
        asked about, so the time that the caller gives does not count."""
        if policy.override is Override.NOBODY:
            return None
        asked_at = request.asked_at
        moment = asked_at if asked_at is not None and asked_at < self._began else self._core.clock.now()
        valid = reader.overrides_valid_at(moment, _MOST_OVERRIDES)
        return next(
            (one for one in valid if Origin(root=one.repository, folder=one.folder).is_same(request.origin)), None
        )

    async def _carried(
        self, request: GateRequest, commit: Commit, policy: GatePolicy, root: str | None
    ) -> tuple[Covered | None, bool]:
        """Another change landed in the same file: the approved diff, applied to the commit's own parent, has to give
        exactly the commit. Also says whether all approvals were tried."""
        wanted = without_exempt(commit.steps, policy)
        if root is None or not commit.parents or not wanted:
            return None, True
        candidates = await self._core.store.read(
            lambda reader: search.of_same_paths(reader, wanted, request.origin, policy)
        )
        usable = [change for change in candidates.changes if _may_cover(change, wanted, policy)]
        for change in usable[:_MOST_CARRIED]:
            diff = await self._core.store.read(lambda reader, change=change: _diff_of(reader, change))
            if diff is None:
                continue
            try:
                records = await self._core.repository.records_on(root, commit.parents[0], diff)
            except BrokerError as error:
                # In a clone on another machine, the parent may be a commit that this repository does not have.
                log.info("approval_not_tried", review_id=change.review_id, reason=error.message)
                continue
            if records is not None and without_exempt(parse_records(records), policy) == wanted:
                return Covered(because=Because.CARRIED, reviews=(change.review_id,)), True
        return None, candidates.is_complete and len(usable) <= _MOST_CARRIED

    def _refusal(self, reader: Reader, commit: Commit, policy: GatePolicy, request: GateRequest) -> Refusal:
        nearest = nearest_review(reader, commit, policy, request.origin, self._core.policy.approvals)
        has_landed = request.asker is not Asker.HOOK
        return Refusal(commit=commit, files=files_of(commit, policy), nearest=nearest, has_landed=has_landed)

    async def _record_refusal(
        self, request: GateRequest, policy: GatePolicy, refusals: Sequence[Refusal], plans: Sequence[str] = ()
    ) -> None:
        def command(tx: Transaction) -> None:
            for refusal in refusals[:20]:
                near = refusal.nearest
                metadata = {
                    "commit": refusal.commit.id,
                    "branch": ", ".join(request.branches),
                    "mode": policy.mode.value,
                    "by": request.asker.value,
                    "files": list(refusal.files[:50]),
                    "nearest": near.review_id if near else None,
                }
                if plans:
                    metadata["plans"] = list(plans[:50])
                tx.append(_event(EventType.GATE_REFUSED, BROKER, tx.now, metadata))

        await self._core.store.write(command)

    async def override(
        self, origin: Origin, root: str | None, person: str, reason: str, minutes: int, *, is_elsewhere: bool = False
    ) -> dict[str, Any]:
        if self._core.project is not None:
            # It lets commits of the whole repository through.
            raise whole_broker_only("an override", self._core.project)
        identity = validation.identity("person", person, self._core.policy.limits)
        because = validation.text("reason", reason, self._core.policy.limits.text)
        if not is_human(identity):
            raise BrokerError(Code.FORBIDDEN, f"{identity} is not a person", "Only a person can override the gate.")
        if not because.strip():
            raise BrokerError(Code.INVALID_ARGUMENT, "reason: an override needs one", "Say why the review is skipped.")
        if not 1 <= minutes <= _LONGEST_OVERRIDE_MINUTES:
            raise BrokerError(
                Code.INVALID_ARGUMENT,
                f"minutes: {minutes} is not between 1 and {_LONGEST_OVERRIDE_MINUTES}",
                "An override has an end; 15 minutes is the default.",
            )
        if self._policy_of(await self._root_of(origin, root, is_elsewhere=is_elsewhere)).override is Override.NOBODY:
            raise BrokerError(
                Code.FORBIDDEN, "the policy allows no override (gate.override is nobody)", "Propose the change instead."
            )

        def command(tx: Transaction) -> dict[str, Any]:
            until = Milliseconds(tx.now + minutes * 60_000)
            made = GateOverride(
                repository=origin.root, folder=origin.folder, person=identity, reason=because,
                created_at=tx.now, until=until,
            )  # fmt: skip
            number = tx.save_override(made)
            metadata = {"override": number, "reason": because, "until": iso(until), "folder": origin.folder}
            tx.append(_event(EventType.GATE_OVERRIDDEN, identity, tx.now, metadata))
            return {"override": number, "person": identity, "reason": because, "until": iso(until)}

        return await self._core.store.write(command)

    async def ledger(self) -> dict[str, Any]:
        """What the dashboard shows: what landed without approval, what was approved and never landed, overrides."""

        def look(reader: Reader) -> dict[str, Any]:
            return {
                "without_approval": [_landed_row(row) for row in reader.landed_without_approval(_MOST_SHOWN)],
                "never_landed": [
                    {"review_id": row.review_id, "reviewer": row.reviewer, "approved_at": iso(row.approved_at)}
                    for row in reader.approved_and_never_landed(_MOST_SHOWN)
                    if row.approved_at is not None
                ],
                "overrides": [
                    {"person": row.person, "reason": row.reason, "until": iso(row.until)}
                    for row in reader.latest_overrides(_MOST_SHOWN)
                ],
                "landed": [_landed_row(row) for row in reader.landed_commits(_MOST_SHOWN)],
            }

        return await self._core.store.read(look)

    async def landed(self, request: GateRequest) -> dict[str, Any]:
        """The references are written: link each commit to what covers it. A commit is recorded once."""
        root = await self._root_of(request.origin, request.root, is_elsewhere=request.is_elsewhere)
        policy = self._policy_for(root, request)
        covered, override, _ = await self._covered(request, policy, root)
        branch = ", ".join(name.removeprefix("refs/heads/") for name in request.branches)

        def command(tx: Transaction) -> int:
            new = [c for c in request.commits if tx.landed_commit(request.origin.folder, c.id) is None]
            for commit in new:
                self._land(tx, request.origin, branch, commit, covered.get(commit.id), override)
            return len(new)

        return {"recorded": await self._core.store.write(command)}

    def _land(
        self,
        tx: Transaction,
        origin: Origin,
        branch: str,
        commit: Commit,
        covered: Covered | None,
        override: GateOverride | None,
    ) -> None:
        overridden = override if covered is not None and covered.because is Because.OVERRIDE else None
        reviews = tuple(ReviewId(review) for review in covered.reviews) if covered else ()
        landed = LandedCommit(
            folder=origin.folder,
            commit_id=commit.id,
            branch=branch,
            digest=digest_of_sorted(raw_records(commit.steps)),
            subject=commit.subject,
            because=covered.because if covered else None,
            reviews=reviews,
            override_id=overridden.id if overridden else None,
            landed_at=tx.now,
        )
        tx.save_landed(landed)
        metadata = {
            "commit": commit.id,
            "digest": landed.digest,
            "branch": branch,
            "because": landed.because,
            "reviews": list(reviews),
            "override": landed.override_id,
        }
        if landed.because is Because.CARRIED:
            metadata["note"] = _CARRIED_OVER
        linked = [review for review_id in reviews if (review := tx.lock_review(review_id)) is not None]
        for review in linked:
            tx.save(transitions.record_landed(review, metadata=metadata, now=tx.now))
        if not linked:
            tx.append(_event(EventType.COMMIT_LANDED, BROKER, tx.now, metadata))


def _landed_row(row: LandedCommit) -> dict[str, Any]:
    return {
        "commit": row.commit_id,
        "branch": row.branch,
        "subject": row.subject,
        "because": row.because.value if row.because else None,
        "reviews": list(row.reviews),
        "landed_at": iso(row.landed_at),
    }


def _decided(
    reader: Reader, request: GateRequest, policy: GatePolicy, *, thorough: bool
) -> tuple[dict[str, Covered], bool]:
    candidates = search.approvals(reader, request.commits, policy, request.origin, thorough=thorough)
    approvals = [change.approval() for change in candidates.changes]
    return decide(request.commits, approvals, policy), candidates.is_complete


def _may_cover(change: ReviewedChange, wanted: Steps, policy: GatePolicy) -> bool:
    return change.approval().by_person or not any(policy.needs_person(path) for path in wanted)


def _overridden(reader: Reader, request: GateRequest, covered: dict[str, Covered]) -> dict[str, Covered]:
    """An override counts for what landed while it was valid, and for nothing else."""
    missing = [commit.id for commit in request.commits if commit.id not in covered]
    landed = [reader.landed_commit(request.origin.folder, commit_id) for commit_id in missing]
    found = [commit.commit_id for commit in landed if commit and commit.because is Because.OVERRIDE]
    return dict.fromkeys(found, Covered(because=Because.OVERRIDE))


def _diff_of(reader: Reader, change: ReviewedChange) -> bytes | None:
    revision = reader.revision(change.review_id, change.revision, with_diff=True)
    return revision.diff if revision else None


def _event(event_type: EventType, actor: Identity, now: Milliseconds, metadata: dict[str, Any]) -> NewEvent:
    return NewEvent(
        event_type=event_type,
        actor=actor,
        review_id=None,
        old_status=None,
        new_status=None,
        timestamp=now,
        metadata=metadata,
    )
