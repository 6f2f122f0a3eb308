"""When the agents do not converge, a person is asked. Agents may go on meanwhile."""

from gsd_review_broker.domain.identity import BROKER, is_human
from gsd_review_broker.domain.model import Change, Identity, Milliseconds, Policy, Review
from gsd_review_broker.domain.rules.transitions import followed_by, record
from gsd_review_broker.domain.words import EventType

# The same finding raised this often means that the two sides do not agree on it.
REPEATS_THAT_NEED_A_PERSON = 3


def call_human_if_stuck(change: Change, policy: Policy, now: Milliseconds) -> Change:
    """From max_rounds on, or when a finding came back a third time."""
    review = change.review
    if review.needs_human is not None:
        return change
    repeated = [f for f in change.findings if f.times_raised >= REPEATS_THAT_NEED_A_PERSON]
    if repeated:
        reason = f"finding {repeated[0].id} was raised {repeated[0].times_raised} times: {repeated[0].title}"
    elif review.round >= policy.max_rounds:
        reason = f"round {review.round} of at most {policy.max_rounds} without an approval"
    else:
        return change
    return _with(change, EventType.HUMAN_REQUESTED, reason, actor=BROKER, now=now)


def call_human(review: Review, *, reason: str, now: Milliseconds) -> Change:
    """The pool failed to get a verdict too often."""
    return record(
        review, EventType.HUMAN_REQUESTED, actor=BROKER, now=now, metadata={"reason": reason}, needs_human=reason
    )


def clear_human(change: Change, *, actor: Identity, now: Milliseconds) -> Change:
    """A person's verdict or message answers the request."""
    if change.review.needs_human is None or not is_human(actor):
        return change
    return _with(change, EventType.HUMAN_CLEARED, None, actor=actor, now=now)


def no_human_needed(review: Review, *, actor: Identity, now: Milliseconds) -> Change | None:
    """The request for a person is settled without one. None if there was no request."""
    if review.needs_human is None:
        return None
    return record(review, EventType.HUMAN_CLEARED, actor=actor, now=now, metadata={"reason": None}, needs_human=None)


def _with(change: Change, event_type: EventType, reason: str | None, *, actor: Identity, now: Milliseconds) -> Change:
    marked = record(change.review, event_type, actor=actor, now=now, metadata={"reason": reason}, needs_human=reason)
    return followed_by(change, marked)
