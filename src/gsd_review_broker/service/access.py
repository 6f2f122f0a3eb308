"""Whose name is whose. The pool's reviewers prove theirs with the token that their process was given; everybody
else's name is what they say. Nobody but its process acts as a pool's reviewer, alive or ended."""

import hashlib
import secrets
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from gsd_review_broker.domain import rules
from gsd_review_broker.domain.caller import LOCAL, UNKNOWN, Caller, reviewer
from gsd_review_broker.domain.identity import BROKER, identity_key
from gsd_review_broker.domain.model import EventType, Identity, Milliseconds, NewEvent, Review
from gsd_review_broker.domain.pool import ReviewerState
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports import Clock, Store, Transaction

# By this a token of ours is known for what it is, even when its process is gone.
TOKEN_PREFIX = "tandem-reviewer-"  # noqa: S105 - no secret, only its first letters
# Arguments that say who acts; the last two only where something is written, elsewhere they are filters.
_ACTING = ("reviewer_id", "caller_id", "sender_id")
_ACTING_WHEN_WRITING = (*_ACTING, "proposer_id", "agent_type")


# Where the web's edge puts the caller of a request, in its ASGI scope.
CALLER = "tandem.caller"


def caller_in(scope: MutableMapping[str, Any]) -> Caller:
    return scope[CALLER]


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

    def caller(self, bearer: str | None) -> Caller:
        """Whose token it is. Tokens without our prefix are ignored."""
        if bearer is None or not self._standing or not bearer.startswith(TOKEN_PREFIX):
            return LOCAL
        owner = self._tokens.get(_kept(bearer))
        return UNKNOWN if owner is None else reviewer(owner)


def _kept(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Act:
    """What a caller is about to do, as far as it matters who does it."""

    action: str
    right: rules.Right
    # Arguments that name who acts.
    names: tuple[tuple[str, Identity], ...] = ()
    review_id: object = None


def names_in(arguments: Mapping[str, Any], *, writes: bool) -> tuple[tuple[str, Identity], ...]:
    acting = _ACTING_WHEN_WRITING if writes else _ACTING
    given = [(name, arguments.get(name)) for name in acting]
    return tuple((name, Identity(value)) for name, value in given if isinstance(value, str))


class Gatekeeper:
    """Refuses, and records, who does what is not theirs to do, or acts under a name that is not theirs."""

    def __init__(self, store: Store, access: Access, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._access = access

    def caller(self, bearer: str | None) -> Caller:
        return self._access.caller(bearer)

    async def admit(self, caller: Caller, act: Act) -> None:
        if caller is LOCAL and not self._access.guards:
            return
        guarded = frozenset(name for name, identity in act.names if self._access.standing(identity) is not None)
        try:
            rules.refuse_without_right(caller, act.right, act.action)
            rules.refuse_other_names(caller, act.names, guarded=guarded)
        except BrokerError as error:
            await self.record(error, caller, act)
            raise
        if caller.proven and caller.identity is not None:
            self._access.called(caller.identity, self._clock.now(), act.action)

    async def record(self, error: BrokerError, caller: Caller, act: Act) -> None:
        await self._store.write(
            lambda tx: tx.append(refused_access(error, caller, action=act.action, review_id=act.review_id, now=tx.now))
        )


def refused_access(
    error: BrokerError, caller: Caller, *, action: str, review_id: object, now: Milliseconds
) -> NewEvent:
    """About no review: a stranger's attempt does not change one, not even its version."""
    said: dict[str, Any] = {"code": error.code.value, "reason": error.message[:500], "tool": action}
    if isinstance(review_id, str):
        said["asked_review"] = review_id[:64]
    return NewEvent(
        event_type=EventType.ACCESS_REFUSED,
        actor=caller.proven_identity or BROKER,
        review_id=None,
        old_status=None,
        new_status=None,
        timestamp=now,
        metadata=said,
    )


def recorded(tx: Transaction, error: BrokerError, caller: Caller, action: str, review: Review) -> BrokerError:
    """The refusal, with its event in the same transaction."""
    tx.append(refused_access(error, caller, action=action, review_id=review.id, now=tx.now))
    return error


@dataclass(frozen=True, kw_only=True, slots=True)
class ByClaim:
    """A call that acts by a claim, without having to name the claimant."""

    action: str
    caller: Caller
    named: Identity | None = None
    claim_generation: int | None = None

    def refusal(self, access: Access, tx: Transaction, review: Review) -> BrokerError | None:
        """Recorded where it is refused."""
        error = rules.claim_refusal(
            self.caller,
            review,
            named=self.named,
            claim_generation=self.claim_generation,
            pool_managed=access.standing(review.claimed_by) is not None,
        )
        return None if error is None else recorded(tx, error, self.caller, self.action, review)


def draining(identity: Identity) -> BrokerError:
    return BrokerError(
        Code.FORBIDDEN,
        f"{identity} is being ended and takes no new claim",
        "Finish what you hold, then stop: call nothing more.",
    )
