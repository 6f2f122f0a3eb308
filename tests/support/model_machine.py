"""What a review must do, written from the contract and from nothing else: (review, call) -> (review, answer).

The state machine compares each answer with it. For calls that overlapped, `explained` looks for an order,
consistent with real time, in which the model would have given the answers that the clients got.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

LIVE = ("claimed", "in_review")
PROPOSER_MAY_ANSWER = (*LIVE, "changes_requested")
AGENT = "gsd-executor"


@dataclass(frozen=True, kw_only=True)
class Modelled:
    """One review. `owner` is the proposer_id it was created with; `kept_for` has it to itself for 60 s."""

    owner: str | None = None
    author: str = AGENT
    applies: bool = True
    status: str = "pending"
    revision: int = 1
    round: int = 1
    generation: int = 0
    claimed_by: str | None = None
    verdict: str | None = None
    counter_patch: str | None = None
    kept_for: str | None = None
    findings: frozenset[str] = frozenset()
    resolved: frozenset[str] = frozenset()

    @property
    def proposer(self) -> str:
        return self.owner or AGENT

    @property
    def open_findings(self) -> int:
        return len(self.findings - self.resolved)

    def unclaimed(self) -> "Modelled":
        """Clearing a claim increases the generation; without a claim nothing changes."""
        return replace(self, claimed_by=None, generation=self.generation + (self.claimed_by is not None))


# The code of a refusal, or None.
Answer = str | None
Step = tuple[Modelled, Answer]


def claim_review(review: Modelled, *, reviewer_id: str) -> Step:
    if reviewer_id in {review.proposer, review.author}:
        return review, "self_review"
    if review.status in LIVE:
        return review, None if review.claimed_by == reviewer_id else "already_claimed"
    if review.status != "pending":
        return review, "invalid_transition"
    if review.kept_for not in {None, reviewer_id}:
        return review, "already_claimed"
    if not review.applies:
        return replace(review, status="changes_requested", verdict="changes_requested", kept_for=None), None
    generation = review.generation + 1
    return replace(review, status="claimed", claimed_by=reviewer_id, generation=generation, kept_for=None), None


def may_be_claimed(review: Modelled, reviewer_id: str) -> bool:
    """What claim_next considers; a diff that does not apply is rejected in passing."""
    return review.status == "pending" and claim_review(review, reviewer_id=reviewer_id)[1] is None


def release_claim(review: Modelled, *, claim_generation: int) -> Step:
    if claim_generation != review.generation:
        return review, "stale_claim"
    if review.status not in LIVE:
        return review, "invalid_transition"
    return replace(review.unclaimed(), status="pending"), None


def submit_verdict(
    review: Modelled,
    *,
    verdict: str,
    reason: str | None = None,
    reviewer_id: str | None = None,
    claim_generation: int | None = None,
    counter_patch: str | None = None,
    findings: Sequence[dict[str, Any]] = (),
) -> Step:
    if verdict != "approved" and not (reason or "").strip():
        return review, "invalid_argument"
    if claim_generation not in {None, review.generation}:
        return review, "stale_claim"
    if review.claimed_by is None:
        return review, "invalid_transition"
    if reviewer_id not in {None, review.claimed_by}:
        return review, "not_claimant"
    if reviewer_id is None and claim_generation is None:
        return review, "invalid_argument"
    titles = frozenset(finding["title"] for finding in findings)
    new_patch = counter_patch is not None and review.counter_patch != "pending"
    if review.status == verdict and not new_patch and titles <= review.findings:
        return review, None
    if review.status not in LIVE:
        return review, "invalid_transition"
    after = replace(review, findings=review.findings | titles)
    if counter_patch is not None:
        after = replace(after, counter_patch="pending")
    if verdict == "approved":
        # An approval is of the proposal as it is: an open counter-patch is superseded.
        after = _superseded(after)
    return after if verdict == "comment" else replace(after, status=verdict, verdict=verdict), None


def add_message(review: Modelled, **_said: Any) -> Step:
    if review.status in {"pending", "closed"}:
        return review, "invalid_transition"
    return replace(review, status="in_review") if review.status == "claimed" else review, None


def _may_act(review: Modelled, proposer_id: str | None) -> bool:
    is_person = (proposer_id or "").startswith("human:")
    return review.owner is None or proposer_id == review.owner or is_person


def _renewed(review: Modelled, **content: Any) -> Modelled:
    """New content: cleared, the next round, and reserved for the last reviewer (active a moment ago), unless it stands
    behind the content now and may not judge it.
    """
    kept_for = None if review.claimed_by == content["author"] else review.claimed_by
    return replace(
        review.unclaimed(),
        status="pending",
        revision=review.revision + 1,
        round=review.round + (review.claimed_by is not None),
        verdict=None,
        kept_for=kept_for,
        **content,
    )


def revise(review: Modelled, *, proposer_id: str | None = None, applies: bool = True) -> Step:
    if not _may_act(review, proposer_id):
        return review, "forbidden"
    if review.status != "changes_requested":
        return review, "invalid_transition"
    return _renewed(_superseded(review), author=proposer_id or AGENT, applies=applies), None


def accept_counter_patch(review: Modelled, *, proposer_id: str | None = None) -> Step:
    if not _may_act(review, proposer_id):
        return review, "forbidden"
    if review.status not in PROPOSER_MAY_ANSWER or review.counter_patch != "pending":
        return review, "invalid_transition"
    author = proposer_id or review.proposer
    return _renewed(review, author=author, applies=True, counter_patch="accepted"), None


def reject_counter_patch(review: Modelled, *, proposer_id: str | None = None, reason: str | None = None) -> Step:
    if not _may_act(review, proposer_id):
        return review, "forbidden"
    if review.status not in PROPOSER_MAY_ANSWER or review.counter_patch != "pending":
        return review, "invalid_transition"
    return replace(review, counter_patch="rejected"), None


def close_review(
    review: Modelled, *, proposer_id: str | None = None, closer_role: str = "proposer", reason: str | None = None
) -> Step:
    if closer_role == "reviewer" or not _may_act(review, proposer_id):
        return review, "forbidden"
    if review.status == "closed":
        return review, "invalid_transition"
    after = review.unclaimed() if review.status in LIVE else review
    return replace(_superseded(after), status="closed", kept_for=None), None


def _superseded(review: Modelled) -> Modelled:
    return replace(review, counter_patch="superseded") if review.counter_patch == "pending" else review


def resolve_finding(review: Modelled, *, title: str) -> Step:
    if review.status == "closed":
        return review, "invalid_transition"
    return replace(review, resolved=review.resolved | {title}), None


def get_review_status(review: Modelled) -> Step:
    return review, None


TOOLS: dict[str, Callable[..., Step]] = {
    "claim_review": claim_review,
    "release_claim": release_claim,
    "submit_verdict": submit_verdict,
    "add_message": add_message,
    "accept_counter_patch": accept_counter_patch,
    "reject_counter_patch": reject_counter_patch,
    "close_review": close_review,
    "get_review_status": get_review_status,
}

# What a result may contain about a review, by the name that results use.
_SHOWN: dict[str, Callable[[Modelled], Any]] = {
    "status": lambda review: review.status,
    "revision": lambda review: review.revision,
    "round": lambda review: review.round,
    "claimed_by": lambda review: review.claimed_by,
    "claim_generation": lambda review: review.generation,
    "counter_patch_status": lambda review: review.counter_patch,
    "open_finding_count": lambda review: review.open_findings,
}


def differences(result: dict[str, Any], review: Modelled) -> dict[str, tuple[Any, Any]]:
    """Where a result and the model disagree: (the result, the contract)."""
    expected = {name: shown(review) for name, shown in _SHOWN.items() if name in result}
    if "counter_patch_status" in result:
        expected["verdict"] = review.verdict
    return {name: (result[name], value) for name, value in expected.items() if result[name] != value}


@dataclass(frozen=True, kw_only=True)
class Called:
    """One call of a history: when it began and ended, and its answer."""

    began: int
    ended: int
    tool: str
    arguments: dict[str, Any]
    code: Answer
    result: dict[str, Any]


# Refusals that only overlapping calls can get, and that change nothing.
_OF_RACES = {("accept_counter_patch", "conflict"), ("claim_review", "busy")}


def explained(history: Sequence[Called], start: Modelled) -> list[Called] | None:
    """An order of the calls that the contract allows, or None: then the history is not linearizable."""
    dead_ends: set[tuple[frozenset[int], Modelled]] = set()

    def search(left: frozenset[int], review: Modelled, done: list[Called]) -> list[Called] | None:
        if not left:
            return done
        if (left, review) in dead_ends:
            return None
        first_end = min(history[index].ended for index in left)
        for index in sorted(left):
            call = history[index]
            if call.began > first_end:
                continue
            after = _fits(call, review)
            order = search(left - {index}, after, [*done, call]) if after is not None else None
            if order is not None:
                return order
        dead_ends.add((left, review))
        return None

    return search(frozenset(range(len(history))), start, [])


def _fits(call: Called, review: Modelled) -> Modelled | None:
    """The review after the call, if the call could have this answer at this point."""
    if (call.tool, call.code) in _OF_RACES:
        return review
    after, code = TOOLS[call.tool](review, **call.arguments)
    return after if code == call.code and not differences(call.result, after) else None
