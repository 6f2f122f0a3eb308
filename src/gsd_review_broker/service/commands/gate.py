"""The gate's questions: may these commits land, which review is nearest, and what has landed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import structlog

from gsd_review_broker.domain.gate.decision import (
    Because,
    Commit,
    Covered,
    GateOverride,
    LandedCommit,
    RepositoryId,
    ReviewedChange,
    may_cover,
    without_exempt,
)
from gsd_review_broker.domain.gate.judge import NOT_ALL, GateAnswer, is_off, judge, of_same_paths
from gsd_review_broker.domain.gate.policy import GatePolicy, Mode, Override, tightened
from gsd_review_broker.domain.gate.records import Steps, digest_of_sorted, parse_records, raw_records
from gsd_review_broker.domain.gate.refusal import Nearest, shown_path
from gsd_review_broker.domain.gate.request import Asker, GateRequest
from gsd_review_broker.domain.model import ApprovalPolicy, Milliseconds, ReviewId
from gsd_review_broker.domain.rules import transitions
from gsd_review_broker.domain.rules.verdicts import texts_of
from gsd_review_broker.domain.text import BROKER, is_human
from gsd_review_broker.domain.words import EventType, Status
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.store import Reader, ReviewFilter, Transaction
from gsd_review_broker.service import validation
from gsd_review_broker.service.access import event_without_review
from gsd_review_broker.service.approvals import missing_in
from gsd_review_broker.service.core import Core
from gsd_review_broker.service.project_store import whole_broker_only
from gsd_review_broker.service.wire.broker import landed_row
from gsd_review_broker.service.wire.encoding import iso

log = structlog.get_logger()

_MOST_CARRIED = 5
_CARRIED_OVER = "the approval carried over: another change had landed in the same files"
_MOST_SHOWN = 50
_MOST_OPEN_REVIEWS = 20
_MOST_NAMED = 5
_MOST_ON_PATH = 20
_OPEN = (Status.PENDING, Status.CLAIMED, Status.IN_REVIEW, Status.CHANGES_REQUESTED)
_LONGEST_OVERRIDE_MINUTES = 24 * 60

# The policy for a main work tree; None for a bare repository.
PolicyOf = Callable[[str | None], GatePolicy]


class Gate:
    def __init__(self, core: Core, policy_of: PolicyOf, *, serves: str) -> None:
        self._core = core
        self._policy_of = policy_of
        self._serves = serves
        self._began = core.clock.now()

    async def check(self, request: GateRequest) -> GateAnswer:
        """Answer from one snapshot: an approval that comes later applies to the next question."""
        root = await self._root_of(request.origin, request.root, is_elsewhere=request.is_elsewhere)
        answer = await self._judged(request, self._policy_for(root, request), root)
        if answer.refusals and request.asker is not Asker.STATUS:
            await self._record_refusal(request, answer)
        return answer

    async def _root_of(self, origin: RepositoryId, root: str | None, *, is_elsewhere: bool) -> str | None:
        """Find the main work tree on this machine whose policy applies.

        A user's broker looks at no folder outside its allowed roots, and knows no work tree on another machine.
        """
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
        """Return the policy, tightened by the caller's own files and environment."""
        policy = self._policy_of(root)
        for section in request.demands:
            policy = tightened(policy, section)
        return policy if request.mode is None else policy.at_least(request.mode)

    async def _judged(self, request: GateRequest, policy: GatePolicy, root: str | None) -> GateAnswer:
        """Ask the judge; then again, if approvals carried over to commits that it knows no review for."""

        def ask(reader: Reader, carried: dict[str, Covered], notes: Sequence[str]) -> GateAnswer:
            return judge(
                reader, request, policy, self._moment(request), known=carried, notes=notes,
                nearest=lambda commit: _nearest_review(
                    reader, commit, policy, request.origin, self._core.policy.approvals
                ),
            )  # fmt: skip

        answer = await self._core.store.read(lambda reader: ask(reader, {}, ()))
        if is_off(request, policy):
            return answer
        carried: dict[str, Covered] = {}
        looked_at_all = True
        for commit in request.commits:
            if commit.id not in answer.covered or answer.covered[commit.id].because is Because.OVERRIDE:
                covered, are_all = await self._carried(request, commit, policy, root)
                looked_at_all = looked_at_all and are_all
                carried |= {commit.id: covered} if covered else {}
        if not carried and looked_at_all:
            return answer
        notes = () if looked_at_all else (NOT_ALL,)
        return await self._core.store.read(lambda reader: ask(reader, carried, notes))

    def _moment(self, request: GateRequest) -> Milliseconds:
        """Now; or then, for a commit that landed while no broker was running. What landed since this broker began was
        asked about, so the time that the caller gives does not apply."""
        asked_at = request.asked_at
        return asked_at if asked_at is not None and asked_at < self._began else self._core.clock.now()

    async def _carried(
        self, request: GateRequest, commit: Commit, policy: GatePolicy, root: str | None
    ) -> tuple[Covered | None, bool]:
        """Another change landed in the same file: the approved diff, applied to the commit's own parent, has to give
        exactly the commit. Also says whether all approvals were tried."""
        wanted = without_exempt(commit.steps, policy)
        if root is None or not commit.parents or not wanted:
            return None, True
        candidates = await self._core.store.read(lambda reader: of_same_paths(reader, wanted, request.origin, policy))
        usable = [change for change in candidates.changes if may_cover(change.approval(), wanted, policy)]
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

    async def _record_refusal(self, request: GateRequest, answer: GateAnswer) -> None:
        def command(tx: Transaction) -> None:
            for refusal in answer.refusals[:20]:
                near = refusal.nearest
                metadata = {
                    "commit": refusal.commit.id,
                    "branch": ", ".join(request.branches),
                    "mode": answer.mode.value,
                    "by": request.asker.value,
                    "files": list(refusal.files[:50]),
                    "nearest": near.review_id if near else None,
                }
                if answer.missing_plans:
                    metadata["plans"] = list(answer.missing_plans[:50])
                tx.append(event_without_review(EventType.GATE_REFUSED, BROKER, tx.now, metadata))

        await self._core.store.write(command)

    async def override(
        self,
        origin: RepositoryId,
        root: str | None,
        person: str,
        reason: str,
        minutes: int,
        *,
        is_elsewhere: bool = False,
    ) -> dict[str, Any]:
        if self._core.project is not None:
            # It lets commits of the whole repository through.
            raise whole_broker_only("an override", self._core.project)
        identity = validation.identity("person", person, self._core.policy.limits)
        because = validation.text("reason", reason, self._core.policy.limits.text)
        if not is_human(identity):
            raise BrokerError(Code.FORBIDDEN, f"{identity} is not a person", "Only a person can override the gate.")
        validation.between("minutes", minutes, 1, _LONGEST_OVERRIDE_MINUTES)
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
            tx.append(event_without_review(EventType.GATE_OVERRIDDEN, identity, tx.now, metadata))
            return {"override": number, "person": identity, "reason": because, "until": iso(until)}

        return await self._core.store.write(command)

    async def ledger(self) -> dict[str, Any]:
        """Return what landed without approval, what was approved and never landed, and the overrides."""

        def look(reader: Reader) -> dict[str, Any]:
            return {
                "without_approval": [landed_row(row) for row in reader.landed_without_approval(_MOST_SHOWN)],
                "never_landed": [
                    {"review_id": row.review_id, "reviewer": row.reviewer, "approved_at": iso(row.approved_at)}
                    for row in reader.approved_and_never_landed(_MOST_SHOWN)
                    if row.approved_at is not None
                ],
                "overrides": [
                    {"person": row.person, "reason": row.reason, "until": iso(row.until)}
                    for row in reader.latest_overrides(_MOST_SHOWN)
                ],
                "landed": [landed_row(row) for row in reader.landed_commits(_MOST_SHOWN)],
            }

        return await self._core.store.read(look)

    async def landed(self, request: GateRequest) -> dict[str, Any]:
        """Link each commit that landed to what covers it. A commit is recorded once."""
        root = await self._root_of(request.origin, request.root, is_elsewhere=request.is_elsewhere)
        # The plans were asked for before it landed, and what covers a commit is recorded in every mode.
        policy = self._policy_for(root, request).at_least(Mode.BLOCK)
        answer = await self._judged(replace(request, plans=()), policy, root)
        covered = answer.landing()
        branch = ", ".join(name.removeprefix("refs/heads/") for name in request.branches)

        def command(tx: Transaction) -> int:
            new = [c for c in request.commits if tx.landed_commit(request.origin.folder, c.id) is None]
            for commit in new:
                self._land(tx, request.origin, branch, commit, covered.get(commit.id), answer.override)
            return len(new)

        return {"recorded": await self._core.store.write(command)}

    def _land(
        self,
        tx: Transaction,
        origin: RepositoryId,
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
            tx.append(event_without_review(EventType.COMMIT_LANDED, BROKER, tx.now, metadata))


def _nearest_review(
    reader: Reader, commit: Commit, policy: GatePolicy, origin: RepositoryId, approvals: ApprovalPolicy
) -> Nearest | None:
    """Find an approved review that has not landed, else an open one of the same files, else one that has landed."""
    steps = without_exempt(commit.steps, policy)
    if not steps:
        return None
    approved = of_same_paths(reader, steps, origin, policy).changes or [
        change for change in reader.approvals_on_path(min(steps), _MOST_ON_PATH) if change.origin.is_same(origin)
    ]
    waiting = next((change for change in approved if change.landed_at is None), None)
    if waiting is not None:
        return _of_approved(waiting, steps, policy)
    return _open_review(reader, steps, approvals) or (_of_approved(approved[0], steps, policy) if approved else None)


def _of_approved(change: ReviewedChange, steps: Steps, policy: GatePolicy) -> Nearest:
    known = without_exempt(parse_records(change.records), policy)
    if known == steps:
        return Nearest(review_id=change.review_id, standing="needs_person")
    differing = sorted(
        path
        for path in known.keys() | steps.keys()
        if path not in known or path not in steps or known[path].new != steps[path].new
    )
    if not differing:
        return Nearest(review_id=change.review_id, standing="stale")
    named = tuple(shown_path(path) for path in differing[:_MOST_NAMED])
    return Nearest(review_id=change.review_id, standing="changed", differs_in=named)


def _open_review(reader: Reader, steps: Steps, approvals: ApprovalPolicy) -> Nearest | None:
    names = {shown_path(path) for path in steps}
    for status in _OPEN:
        for review in reader.reviews(ReviewFilter(status=status), after=None, limit=_MOST_OPEN_REVIEWS):
            revision = reader.revision(review.id, review.revision, with_diff=False)
            if revision and any(file.path in names for file in revision.affected_files):
                found = missing_in(reader, review, approvals)
                return Nearest(
                    review_id=review.id, standing=status.value, missing=tuple(texts_of(found[1])) if found else ()
                )
    return None


def _diff_of(reader: Reader, change: ReviewedChange) -> bytes | None:
    revision = reader.revision(change.review_id, change.revision, with_diff=True)
    return revision.diff if revision else None
