"""Whose name is whose. The pool's reviewers prove theirs with the token that their process was given; everybody
else's name is what they say. Nobody but its process acts as a pool's reviewer, alive or ended."""

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gsd_review_broker.domain.model import BROKER, EventType, Identity, Milliseconds, NewEvent, Review, identity_key
from gsd_review_broker.domain.pool import ReviewerState
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep
from gsd_review_broker.ports import Clock, Store, Transaction

# By this a token of ours is known for what it is, even when its process is gone.
TOKEN_PREFIX = "tandem-reviewer-"  # noqa: S105 - no secret, only its first letters
# Arguments that say who acts; the last two only where something is written, elsewhere they are filters.
_ACTING = ("reviewer_id", "caller_id", "sender_id")
_ACTING_WHEN_WRITING = (*_ACTING, "proposer_id", "agent_type")


class Access:
    """Kept in memory: a token dies with its process, and with the broker that made it."""

    def __init__(self) -> None:
        self._standing: dict[str, ReviewerState] = {}
        self._tokens: dict[bytes, Identity] = {}
        self._called: dict[Identity, tuple[Milliseconds, str]] = {}

    @property
    def guards(self) -> bool:
        """Is there any name to guard? Without a pool there is none, and calls are not looked at."""
        return bool(self._standing)

    def remember(self, identities: Iterable[Identity]) -> None:
        """Those of earlier starts: their names stay theirs."""
        for identity in identities:
            self._standing.setdefault(identity_key(identity), ReviewerState.TERMINATED)

    def admit(self, identity: Identity) -> str:
        """A new process under this name; gives its token."""
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        self._standing[identity_key(identity)] = ReviewerState.ACTIVE
        self._tokens[_kept(token)] = identity
        return token

    def drain(self, identity: Identity) -> None:
        self._standing[identity_key(identity)] = ReviewerState.DRAINING

    def dismiss(self, identity: Identity) -> None:
        self._standing[identity_key(identity)] = ReviewerState.TERMINATED
        self._tokens = {token: owner for token, owner in self._tokens.items() if owner != identity}
        self._called.pop(identity, None)

    def called(self, identity: Identity, now: Milliseconds, tool: str) -> None:
        self._called[identity] = now, tool

    def last_call(self, identity: Identity) -> tuple[Milliseconds, str] | None:
        """When the process last called the broker, and what for."""
        return self._called.get(identity)

    def standing(self, identity: Identity | None) -> ReviewerState | None:
        """None for who is not the pool's."""
        return self._standing.get(identity_key(identity)) if identity and self._standing else None

    def owner(self, bearer: str | None) -> Identity | None:
        """Whose token it is. One that is none of ours proves nothing, and is not looked at."""
        if bearer is None or not bearer.startswith(TOKEN_PREFIX):
            return None
        owner = self._tokens.get(_kept(bearer))
        if owner is None:
            raise BrokerError(
                Code.UNAUTHENTICATED,
                "this token belongs to no reviewer that runs",
                "A reviewer's token ends with its process: stop.",
            )
        return owner

    def speaks_for(self, authenticated_as: Identity | None, identity: Identity | None) -> bool:
        """May who calls act under this name?"""
        if self.standing(identity) is None:
            return True
        return identity is not None and authenticated_as is not None and _same(authenticated_as, identity)


def _kept(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _same(one: Identity, other: Identity) -> bool:
    return identity_key(one) == identity_key(other)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A call, as far as it matters who makes it."""

    tool: str
    arguments: Mapping[str, Any]
    writes: bool
    for_reviewers: bool

    def names(self) -> list[tuple[str, Identity]]:
        acting = _ACTING_WHEN_WRITING if self.writes else _ACTING
        given = [(name, self.arguments.get(name)) for name in acting]
        return [(name, Identity(value)) for name, value in given if isinstance(value, str)]


class Gatekeeper:
    """Refuses, and records, who acts under a name that is not theirs."""

    def __init__(self, store: Store, access: Access, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._access = access

    @property
    def guards(self) -> bool:
        return self._access.guards

    async def admit(self, bearer: str | None, asked: Asked) -> Identity | None:
        """Who calls, where that is proven."""
        caller: Identity | None = None
        try:
            caller = self._access.owner(bearer)
            self._check(caller, asked)
        except BrokerError as error:
            await self._store.write(lambda tx, said=error: self._record(tx, said, caller, asked))
            raise
        if caller is not None:
            self._access.called(caller, self._clock.now(), asked.tool)
        return caller

    def _record(self, tx: Transaction, error: BrokerError, caller: Identity | None, asked: Asked) -> None:
        review_id = asked.arguments.get("review_id")
        tx.append(refused_access(error, actor=caller, tool=asked.tool, review_id=review_id, now=tx.now))

    def _check(self, caller: Identity | None, asked: Asked) -> None:
        if caller is not None and not asked.for_reviewers:
            raise BrokerError(
                Code.FORBIDDEN,
                f"{asked.tool} is not for reviewers, and this is the token of {caller}",
                "A reviewer claims, reads, argues and judges; nothing else.",
            )
        for argument, identity in asked.names():
            if caller is not None and not _same(caller, identity):
                raise BrokerError(
                    Code.FORBIDDEN, f"{argument}: {caller} cannot act as {identity}", f"Pass {argument}={caller}."
                )
            if not self._access.speaks_for(caller, identity):
                raise BrokerError(
                    Code.FORBIDDEN,
                    f"{argument}: {identity} is a reviewer that the broker started; only its own process acts as it",
                    "Take a name of your own.",
                )


def refused_access(
    error: BrokerError, *, actor: Identity | None, tool: str, review_id: object, now: Milliseconds
) -> NewEvent:
    """About no review: a stranger's attempt does not change one, not even its version."""
    said: dict[str, Any] = {"code": error.code.value, "reason": error.message[:500], "tool": tool}
    if isinstance(review_id, str):
        said["asked_review"] = review_id[:64]
    return NewEvent(
        event_type=EventType.ACCESS_REFUSED,
        actor=actor or BROKER,
        review_id=None,
        old_status=None,
        new_status=None,
        timestamp=now,
        metadata=said,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ByClaim:
    """A call that acts by a claim: by its generation, or as its side, without having to name the claimant."""

    tool: str
    authenticated_as: Identity | None
    named: Identity | None = None
    claim_generation: int | None = None

    def refusal(self, access: Access, tx: Transaction, review: Review) -> BrokerError | None:
        """Where the claimant is the pool's, only its process uses its claim. Other claims are for the rules."""
        claimant = review.claimed_by
        if claimant is None or (self.named is not None and not _same(self.named, claimant)):
            return None
        if self.claim_generation is not None and self.claim_generation != review.claim_generation:
            return None
        allowed = access.speaks_for(self.authenticated_as, claimant)
        if self.authenticated_as is not None:
            allowed = _same(self.authenticated_as, claimant)
        if allowed:
            return None
        error = BrokerError(
            Code.FORBIDDEN,
            f"the claim on review {review.id} is {claimant}'s, and only its own process uses it",
            NextStep(Next.WRITE_AS_YOURSELF),
        )
        actor = self.authenticated_as
        tx.append(refused_access(error, actor=actor, tool=self.tool, review_id=review.id, now=tx.now))
        return error


def draining(identity: Identity) -> BrokerError:
    return BrokerError(
        Code.FORBIDDEN,
        f"{identity} is being ended and takes no new claim",
        "Finish what you hold, then stop: call nothing more.",
    )
