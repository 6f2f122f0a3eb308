"""The discussion: messages, counter-patches, findings."""

import re
from collections.abc import Sequence
from dataclasses import replace

from gsd_review_broker.domain.model import (
    Change,
    CounterPatch,
    Finding,
    Identity,
    Message,
    Milliseconds,
    Policy,
    Review,
    Revision,
)
from gsd_review_broker.domain.patch.places import LinePlace
from gsd_review_broker.domain.rules.claims import deadline
from gsd_review_broker.domain.rules.proposals import renew, require_proposer
from gsd_review_broker.domain.rules.transitions import (
    Command,
    clear_human,
    hash_of_message,
    invalid_transition,
    record,
    require,
)
from gsd_review_broker.domain.text import same_identity
from gsd_review_broker.domain.words import Anchor, CounterPatchStatus, Disposition, EventType, Status
from gsd_review_broker.errors import BrokerError, Code

PREVIEW_CHARACTERS = 100
FEED_PREVIEW_CHARACTERS = 120


def send_message(review: Review, *, message: Message, policy: Policy, now: Milliseconds) -> Change:
    """Add a message. The first one after a claim opens the discussion; the claimant's extend its deadline."""
    require(review, Command.SEND_MESSAGE)
    opens = review.status is Status.CLAIMED
    from_claimant = review.is_claim_live and same_identity(message.sender, review.claimed_by)
    change = record(
        review,
        EventType.MESSAGE_SENT,
        actor=message.sender,
        now=now,
        metadata={
            "body_preview": message.body[:PREVIEW_CHARACTERS],
            "round": message.round,
            "sender_role": message.sender_role,
            "path": message.path,
            "line": message.line,
            "content_hash": hash_of_message(message),
        },
        status=Status.IN_REVIEW if opens else review.status,
        claim_expires_at=deadline(policy, now) if from_claimant else review.claim_expires_at,
        message_count=review.message_count + 1,
        last_message_at=now,
        last_message_preview=message.body[:FEED_PREVIEW_CHARACTERS],
    )
    return clear_human(replace(change, message=message), actor=message.sender, now=now)


def accept_counter_patch(
    review: Review,
    *,
    patch: CounterPatch | None,
    revision: Revision,
    caller: Identity | None,
    is_administrator: bool = False,
    findings: tuple[Finding, ...],
    reviewer_alive: bool,
    policy: Policy,
    now: Milliseconds,
) -> Change:
    """Make the reviewer's diff the newest revision, with both authors on record. It is judged like any other.

    `revision` is the one that it replaces: intent and description stay.
    """
    accepter = require_proposer(review, caller, is_administrator=is_administrator)
    target = require(review, Command.ACCEPT_COUNTER_PATCH)
    if patch is None:
        raise invalid_transition(review, None, "no counter-patch is open")
    newest = replace(
        revision,
        number=review.revision + 1,
        diff=patch.diff,
        affected_files=patch.affected_files,
        skip_diff_validation=False,
        author=accepter,
        written_by=patch.offered_by,
        created_at=now,
    )
    return renew(
        review,
        EventType.COUNTER_PATCH_ACCEPTED,
        revision=newest,
        target=target,
        settled=CounterPatchStatus.ACCEPTED,
        findings=findings,
        reviewer_alive=reviewer_alive,
        policy=policy,
        now=now,
    )


def reject_counter_patch(
    review: Review,
    *,
    caller: Identity | None,
    is_administrator: bool = False,
    reason: str | None,
    now: Milliseconds,
) -> Change:
    actor = require_proposer(review, caller, is_administrator=is_administrator)
    require(review, Command.REJECT_COUNTER_PATCH)
    if review.counter_patch_status is not CounterPatchStatus.PENDING:
        raise invalid_transition(review, None, "no counter-patch is open")
    change = record(
        review,
        EventType.COUNTER_PATCH_REJECTED,
        actor=actor,
        now=now,
        metadata={"reason": reason},
        counter_patch_status=CounterPatchStatus.REJECTED,
    )
    return replace(change, counter_patch_settled=(CounterPatchStatus.REJECTED, reason))


def resolve_finding(
    review: Review,
    *,
    finding: Finding,
    disposition: Disposition,
    note: str | None,
    open_finding_count: int,
    actor: Identity,
    now: Milliseconds,
) -> Change:
    """Settle a finding: fixed, rejected with a reason, or deferred. It stays on record."""
    require(review, Command.RESOLVE_FINDING)
    if disposition is Disposition.OPEN:
        raise BrokerError(
            Code.INVALID_ARGUMENT, "disposition: a finding is resolved as fixed, rejected or deferred", ""
        )
    if disposition is Disposition.REJECTED and not (note and note.strip()):
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            "note: a rejected finding needs a reason",
            "Say why it does not hold, so that the reviewer can answer.",
        )
    resolved = replace(finding, disposition=disposition, note=note)
    if resolved == finding:
        return Change(review=review, events=(), findings=(finding,))
    change = record(
        review,
        EventType.FINDING_RESOLVED,
        actor=actor,
        now=now,
        metadata={"finding_id": finding.id, "disposition": disposition, "reason": note},
        open_finding_count=open_finding_count,
    )
    return replace(change, findings=(resolved,))


def same_finding(findings: Sequence[Finding], *, title: str, place: LinePlace, round_: int) -> Finding | None:
    """Find the earlier finding that a new one repeats. In doubt there is none, so that no finding is lost.

    Both have the same title and file, and the same text or line; or the earlier one's lines have changed since.
    """
    alike = [f for f in findings if _sameness(f.path, f.title) == _sameness(place.path, title)]
    exact = [f for f in alike if (f.anchor_text, f.line_start) == (place.text, place.line_start)]
    about_the_same = exact or [f for f in alike if f.anchor_text is not None and f.anchor_text == place.text]
    changed_since = [f for f in alike if f.raised_in_round < round_ and f.anchor is Anchor.OUTDATED]
    return next(iter([*about_the_same, *changed_since]), None)


def _sameness(path: str | None, title: str) -> tuple[str | None, str]:
    return path, re.sub(r"\W+", " ", title).strip().casefold()
