"""The messages between the two sides."""

from dataclasses import dataclass
from typing import Any

from gsd_review_broker.domain.audit import canonical
from gsd_review_broker.domain.caller import Caller
from gsd_review_broker.domain.model import Change, CounterPatch, Finding, Identity, Message, Review, ReviewId
from gsd_review_broker.domain.rules import access, discussion
from gsd_review_broker.domain.rules.transitions import followed_by
from gsd_review_broker.domain.rules.verdicts import Seen, refuse_other_digest
from gsd_review_broker.domain.words import CallerKind, Disposition, Role, Status
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep
from gsd_review_broker.ports.store import Reader, Transaction
from gsd_review_broker.ports.world import review_topic
from gsd_review_broker.service import validation
from gsd_review_broker.service.access import ByClaim, recorded
from gsd_review_broker.service.commands import findings
from gsd_review_broker.service.commands.claims import Claims, ClaimStep
from gsd_review_broker.service.core import Core, Repeat, present
from gsd_review_broker.service.queries.reviews import limit_of
from gsd_review_broker.service.waiting import LongPoll
from gsd_review_broker.service.wire.content import (
    Discussion,
    MessageResult,
    ResolvedFinding,
    SentMessage,
    counter_patch_results,
    fitting_findings,
    message_result,
    resolved_finding,
    sent_message,
)
from gsd_review_broker.service.wire.encoding import make_cursor, read_cursor
from gsd_review_broker.service.wire.reviews import AutoRejected, NothingNew, nothing_new

# A page of messages ends early when it holds this much.
_PAGE_CHARACTERS = 128 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class NewMessage:
    sender_role: Role
    body: str
    sender_id: str | None = None
    path: str | None = None
    line: int | None = None
    in_reply_to: int | None = None
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _DiscussionQuery:
    """The caller's arguments; cursors are bound to all of them."""

    review_id: ReviewId
    round: int | None
    since: int | None


class Discussions:
    def __init__(self, core: Core, waiting: LongPoll, claims: Claims) -> None:
        self._core = core
        self._claims = claims
        self._waiting = waiting

    async def send(self, caller: Caller, review_id: str, message: NewMessage, *, repeat: Repeat | None) -> SentMessage:
        """Send a message. A proven caller is the sender, whatever the message says."""
        named = self._checked(message)
        sender_id = caller.proven_identity or named
        await self._core.saw(sender_id)

        def command(tx: Transaction, current: Review) -> SentMessage | BrokerError:
            refusal = access.side_refusal(caller, message.sender_role)
            if refusal is not None:
                return recorded(tx, refusal, caller, "add_message", current)
            return self._sent(tx, Change(review=current, events=()), message, sender_id)

        unnamed = message.sender_role is Role.REVIEWER and sender_id is None
        by_claim = ByClaim(action="add_message", caller=caller) if unnamed else None
        return await self._core.change(review_id, repeat, command, by_claim=by_claim)

    async def send_with_claim(
        self, caller: Caller, review_id: str, message: NewMessage, *, reviewer_id: str, seen: Seen
    ) -> SentMessage | AutoRejected:
        """Send to a review that is not claimed: the message and its claim are one transaction."""
        reviewer_id = caller.proven_identity or reviewer_id
        reviewer = validation.identity("reviewer_id", reviewer_id, self._core.policy.limits)
        sender_id = caller.acting(self._checked(message))
        await self._core.saw(reviewer)

        def step(tx: Transaction, begun: Change) -> SentMessage:
            refuse_other_digest(begun.review, seen, approves=False)
            return self._sent(tx, begun, message, sender_id)

        async def prepare(_review: Review) -> ClaimStep[SentMessage]:
            return step

        return await self._claims.claimed_with(review_id, reviewer, prepare, seen=seen)

    def _checked(self, message: NewMessage) -> Identity | None:
        """Check the message, and return its sender if the call names one."""
        limits = self._core.policy.limits
        validation.text("body", message.body, limits.text)
        validation.optional_text("path", message.path, limits.intent)
        if message.metadata is not None:
            validation.optional_text("metadata", canonical(message.metadata), limits.text)
        return validation.optional_identity("sender_id", message.sender_id, limits)

    def _sent(self, tx: Transaction, begun: Change, message: NewMessage, sender_id: Identity | None) -> SentMessage:
        current = begun.review
        if message.in_reply_to is not None:
            _require_message(tx, current, message.in_reply_to)
        new = _message(current, message, sender_id, tx)
        change = discussion.send_message(current, message=new, policy=self._core.policy, now=tx.now)
        number = tx.save(followed_by(begun, change))
        assert number is not None  # noqa: S101 - a message was saved
        return sent_message(change, number)

    async def read(
        self,
        review_id: str,
        *,
        round_: int | None,
        since: int | None,
        wait: bool,
        wait_seconds: float | None,
        caller_id: str | None,
        limit: int | None,
        cursor: str | None,
    ) -> Discussion | NothingNew:
        size = limit_of(limit)
        review = await self._core.find(review_id)
        caller = validation.optional_identity("caller_id", caller_id, self._core.policy.limits)
        await self._core.saw(caller, review)
        query = _DiscussionQuery(review.id, round_, since)
        after = since or 0
        if cursor is not None:
            after = _position(read_cursor(cursor, query))

        async def look() -> Discussion | None:
            current, messages, known, patches = await self._core.store.read(
                lambda reader: (
                    reader.review(review.id),
                    reader.messages(review.id, round_=round_, after=after, limit=size + 1),
                    reader.findings(review.id) if cursor is None else [],
                    reader.counter_patches(review.id) if cursor is None else [],
                )
            )
            current = present(current, review.id)
            # A verdict or a closure during the wait is news too.
            if wait and not messages and current.status is review.status is not Status.CLOSED:
                return None
            return _discussion(current, messages, known, patches, size, query)

        topic = review_topic(review.id)
        news = await self._waiting.until(topic, look, wait=wait, wait_seconds=wait_seconds)
        return news or nothing_new(await self._core.find(review.id))

    async def resolve_finding(
        self,
        caller: Caller,
        review_id: str,
        finding_id: str,
        disposition: Disposition,
        *,
        note: str | None,
        as_reviewer: bool,
        repeat: Repeat | None,
        person: str | None = None,
    ) -> ResolvedFinding:
        """Resolve it as the proposer, the reviewer or a person. A proven reviewer is never the proposer."""
        as_reviewer = as_reviewer or (caller.proven and caller.kind is CallerKind.REVIEWER)
        someone = validation.optional_identity("person", person, self._core.policy.limits)
        note = validation.optional_text("note", note, self._core.policy.limits.text)

        def command(tx: Transaction, review: Review) -> ResolvedFinding | BrokerError:
            known = tx.findings(review.id)
            finding = next((one for one in known if one.id == finding_id), None)
            if finding is None:
                raise BrokerError(
                    Code.NOT_FOUND,
                    f"review {review.id} has no finding {finding_id!r}",
                    NextStep(Next.LIST_FINDINGS),
                )
            refusal = access.resolving_refusal(caller, finding)
            if refusal is not None:
                return recorded(tx, refusal, caller, "resolve_finding", review)
            others = [one for one in known if one.id != finding_id]
            change = discussion.resolve_finding(
                review,
                finding=finding,
                disposition=disposition,
                note=note,
                open_finding_count=findings.count_open(others),
                actor=caller.proven_identity or someone or (as_reviewer and review.claimed_by) or review.proposer,
                now=tx.now,
            )
            tx.save(change)
            return resolved_finding(change.review, change.findings[0])

        by_claim = ByClaim(action="resolve_finding", caller=caller) if as_reviewer else None
        return await self._core.change(review_id, repeat, command, by_claim=by_claim)


def _message(review: Review, message: NewMessage, sender_id: Identity | None, tx: Transaction) -> Message:
    """Make the message. A sender without a name speaks for its side."""
    side = review.proposer if message.sender_role is Role.PROPOSER else review.claimed_by
    return Message(
        review_id=review.id,
        round=review.round,
        sender_role=message.sender_role,
        sender=sender_id or side or Identity("reviewer"),
        body=message.body,
        path=message.path,
        line=message.line,
        in_reply_to=message.in_reply_to,
        metadata=message.metadata,
        created_at=tx.now,
    )


def _require_message(reader: Reader, review: Review, number: int) -> None:
    messages = reader.messages(review.id, round_=None, after=number - 1, limit=1) if number > 0 else []
    if not messages or messages[0].id != number:
        raise BrokerError(
            Code.NOT_FOUND,
            f"in_reply_to: review {review.id} has no message {number}",
            NextStep(Next.LIST_MESSAGES),
        )


def _position(position: list[Any]) -> int:
    match position:
        case [int(number)]:
            return number
        case _:
            raise BrokerError(
                Code.INVALID_ARGUMENT, "cursor: this is not a cursor of get_discussion", "Begin again without it."
            )


def _discussion(
    review: Review,
    messages: list[Message],
    known: list[Finding],
    patches: list[CounterPatch],
    size: int,
    query: _DiscussionQuery,
) -> Discussion:
    taken: list[MessageResult] = []
    room = _PAGE_CHARACTERS
    for message in messages[:size]:
        room -= len(message.body)
        if taken and room < 0:
            break
        taken.append(message_result(message))
    more = len(taken) < len(messages)
    shown, left_out = fitting_findings(known)
    return {
        "review_id": review.id,
        "status": review.status.value,
        "version": review.version,
        "round": review.round,
        "messages": taken,
        "findings": shown,
        "findings_left_out": left_out,
        "counter_patches": counter_patch_results(patches),
        "next_cursor": make_cursor(query, [taken[-1]["message_id"]]) if more else None,
        "changed": True,
    }
