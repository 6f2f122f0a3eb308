"""Who calls, and who may act under which name.

The pool's reviewers prove their name with the token that their process was given. All other names are self-declared.
Only its own process acts as a pool's reviewer, whether it is running or has stopped.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gsd_review_broker.domain.caller import ISSUED_PREFIX, LOCAL, UNKNOWN, Caller, reviewer
from gsd_review_broker.domain.model import Milliseconds, NewEvent, Review
from gsd_review_broker.domain.rules.access import (
    AGENT_TYPE,
    Right,
    claim_refusal,
    refuse_other_names,
    refuse_without_right,
)
from gsd_review_broker.domain.text import BROKER, Identity, identity_key
from gsd_review_broker.domain.words import CallerKind, EventType, ReviewerState, TokenState
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.store import Store, Transaction
from gsd_review_broker.ports.world import Clock

# This prefix marks our tokens, even after their process has stopped.
TOKEN_PREFIX = "tandem-reviewer-"  # noqa: S105 - no secret, only its first letters
# Arguments that name the actor. The last two do so only in calls that write; elsewhere they are filters.
_ACTING = ("reviewer_id", "caller_id", "sender_id")
_ACTING_WHEN_WRITING = (*_ACTING, "proposer_id", AGENT_TYPE)


# Where the web's edge puts the caller of a request, in its ASGI scope.
CALLER = "tandem.caller"
# And how a stream asks again whose token it is: it may be revoked meanwhile.
RECHECK = "tandem.recheck"


def caller_in(scope: MutableMapping[str, Any]) -> Caller:
    return scope[CALLER]


async def is_still_admitted(scope: MutableMapping[str, Any]) -> bool:
    recheck = scope.get(RECHECK)
    return recheck is None or await recheck() == caller_in(scope)


class Access:
    """Knows the tokens of the pool's processes. It forgets them with the broker: a token does not outlive either."""

    def __init__(self) -> None:
        self._states: dict[str, ReviewerState] = {}
        self._tokens: dict[str, Identity] = {}
        self._called: dict[Identity, tuple[Milliseconds, str]] = {}

    @property
    def guards(self) -> bool:
        """Say whether there are names to guard. Without a pool there are none, and calls are not checked."""
        return bool(self._states)

    def remember(self, identities: Iterable[Identity]) -> None:
        """Names from earlier starts stay reserved."""
        for identity in identities:
            self._states.setdefault(identity_key(identity), ReviewerState.TERMINATED)

    def admit(self, identity: Identity) -> str:
        """Register a new process under this name. Returns its token."""
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        self._states[identity_key(identity)] = ReviewerState.ACTIVE
        self._tokens[hash_of(token)] = identity
        return token

    def drain(self, identity: Identity) -> None:
        self._states[identity_key(identity)] = ReviewerState.DRAINING

    def dismiss(self, identity: Identity) -> None:
        self._states[identity_key(identity)] = ReviewerState.TERMINATED
        self._tokens = {token: owner for token, owner in self._tokens.items() if owner != identity}
        self._called.pop(identity, None)

    def called(self, identity: Identity, now: Milliseconds, tool: str) -> None:
        self._called[identity] = now, tool

    def last_call(self, identity: Identity) -> tuple[Milliseconds, str] | None:
        """Return when the process last called the broker, and which tool."""
        return self._called.get(identity)

    def pool_state(self, identity: Identity | None) -> ReviewerState | None:
        """Return the state of a pool's reviewer. None for other callers."""
        return self._states.get(identity_key(identity)) if identity and self._states else None

    def caller(self, bearer: str | None) -> Caller:
        """Find the holder of a reviewer's token. Tokens without our prefix are ignored."""
        if bearer is None or not self._states or not bearer.startswith(TOKEN_PREFIX):
            return LOCAL
        owner = self._tokens.get(hash_of(bearer))
        return UNKNOWN if owner is None else reviewer(owner)


@dataclass(frozen=True, kw_only=True, slots=True)
class Act:
    """What a caller is about to do, as far as it matters who does it."""

    action: str
    right: Right
    # Arguments that name who acts.
    names: tuple[tuple[str, Identity], ...] = ()
    review_id: object = None


def names_in(arguments: Mapping[str, Any], *, writes: bool) -> tuple[tuple[str, Identity], ...]:
    acting = _ACTING_WHEN_WRITING if writes else _ACTING
    named = [(name, arguments.get(name)) for name in acting]
    return tuple((name, Identity(value)) for name, value in named if isinstance(value, str))


class Gatekeeper:
    """Refuses, and records, who does what is not theirs to do, or acts under a name that is not theirs."""

    def __init__(self, store: Store, access: Access, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._access = access

    def trusts(self, caller: Caller) -> bool:
        """Such a caller may do everything under any name, so nothing has to be looked at."""
        return caller is LOCAL and not self._access.guards

    async def admit(self, caller: Caller, act: Act) -> None:
        if self.trusts(caller):
            return
        guarded = frozenset(name for name, identity in act.names if self._access.pool_state(identity) is not None)
        try:
            refuse_without_right(caller, act.right, act.action)
            refuse_other_names(caller, act.names, guarded=guarded)
        except BrokerError as error:
            await self.record(error, caller, act)
            raise
        if caller.proven and caller.identity is not None and self._access.pool_state(caller.identity) is not None:
            self._access.called(caller.identity, self._clock.now(), act.action)

    async def record(self, error: BrokerError, caller: Caller, act: Act) -> None:
        await self._store.write(
            lambda tx: tx.append(refused_access(error, caller, action=act.action, review_id=act.review_id, now=tx.now))
        )


def refused_access(
    error: BrokerError, caller: Caller, *, action: str, review_id: object, now: Milliseconds
) -> NewEvent:
    """Make the event of a refused access. It names no review: a stranger's attempt does not change one."""
    metadata: dict[str, Any] = {"code": error.code.value, "reason": error.message[:500], "tool": action}
    if isinstance(review_id, str):
        metadata["asked_review"] = review_id[:64]
    return event_without_review(EventType.ACCESS_REFUSED, caller.proven_identity or BROKER, now, metadata)


def event_without_review(
    event_type: EventType, actor: Identity, now: Milliseconds, metadata: dict[str, Any]
) -> NewEvent:
    return NewEvent(
        event_type=event_type,
        actor=actor,
        review_id=None,
        old_status=None,
        new_status=None,
        timestamp=now,
        metadata=metadata,
    )


def recorded(tx: Transaction, error: BrokerError, caller: Caller, action: str, review: Review) -> BrokerError:
    """Record a refusal in this transaction, and return it."""
    tx.append(refused_access(error, caller, action=action, review_id=review.id, now=tx.now))
    return error


@dataclass(frozen=True, kw_only=True, slots=True)
class ByClaim:
    """A call that acts by a claim, without having to name the claimant."""

    action: str
    caller: Caller
    named: Identity | None = None
    claim_generation: int | None = None
    is_verdict: bool = False

    def refusal(self, access: Access, tx: Transaction, review: Review) -> BrokerError | None:
        """Refuse a caller that may not act by this claim, and record it."""
        error = claim_refusal(
            self.caller,
            review,
            named=self.named,
            claim_generation=self.claim_generation,
            pool_managed=access.pool_state(review.claimed_by) is not None,
            is_verdict=self.is_verdict,
        )
        return None if error is None else recorded(tx, error, self.caller, self.action, review)


def draining(identity: Identity) -> BrokerError:
    return BrokerError(
        Code.FORBIDDEN,
        f"{identity} is being stopped and cannot claim another review",
        "Finish your current review, then stop and make no more calls.",
    )


class Auth(StrEnum):
    # Callers on this machine are trusted; the tokens of people and agents are not looked at.
    OFF = "off"
    TOKEN = "token"  # noqa: S105 - the name of a way, not a secret


class Identification:
    """Finds out whose bearer token it is: once for each request, whatever the request asks.

    `keeper` is who runs the broker: the caller that can read its runtime file has the keeper's token.
    """

    def __init__(
        self, store: Store, access: Access, clock: Clock, *, auth: Auth, keeper: Identity, keeper_token: str
    ) -> None:
        self._store = store
        self._access = access
        self._clock = clock
        self._auth = auth
        self._keeper = Caller(kind=CallerKind.ADMIN, identity=keeper, proven=True)
        self._keeper_token = keeper_token.encode()

    @property
    def needs_token(self) -> bool:
        return self._auth is Auth.TOKEN

    async def caller(self, bearer: str | None) -> Caller:
        """Find the holder. It is UNKNOWN if a token is needed and this is not a live one."""
        if bearer is None:
            return UNKNOWN if self.needs_token else LOCAL
        if hmac.compare_digest(bearer.encode("utf-8", "surrogateescape"), self._keeper_token):
            return self._keeper
        if not self.needs_token or bearer.startswith(TOKEN_PREFIX):
            found = self._access.caller(bearer)
            return UNKNOWN if self.needs_token and found is LOCAL else found
        return await self._holder(bearer) if bearer.startswith(ISSUED_PREFIX) else UNKNOWN

    async def _holder(self, bearer: str) -> Caller:
        """Read each time: a token that was revoked, here or by another broker, is dead with the next call."""
        token = await self._store.glance(lambda reader: reader.token(hash_of(bearer)))
        if token is None or token.state(self._clock.now()) is not TokenState.LIVE:
            return UNKNOWN
        return token.caller()


def hash_of(token: str) -> str:
    """Tokens are random and long, so a plain hash cannot be guessed."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
