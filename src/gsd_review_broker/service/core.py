"""What every service uses: the ports, the policy, and the few steps that all commands share.

Those are: find a review, extend a claim, answer a repeated call as the first time.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from gsd_review_broker.domain.audit import canonical
from gsd_review_broker.domain.model import Identity, Milliseconds, Policy, Review, ReviewId
from gsd_review_broker.domain.rules import claims
from gsd_review_broker.domain.text import identity_key
from gsd_review_broker.domain.words import ReviewerState
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep
from gsd_review_broker.ports.store import IdempotencyKey, Reader, Store, Transaction
from gsd_review_broker.ports.world import Clock, Repository, Wakeups
from gsd_review_broker.service.access import Access, ByClaim
from gsd_review_broker.service.project_store import ProjectStore
from gsd_review_broker.service.validation import text

R = TypeVar("R")

SHORTEST_PREFIX = 6
_MATCHES_SHOWN = 5
ALIVE_MILLISECONDS = 60_000
_MOST_REMEMBERED = 10_000
# A claimant that reads all the time writes its new deadline once a second, not with each call.
_EXTEND_EVERY_MILLISECONDS = 1_000


class Liveness:
    """Remembers which callers were active lately. A restart forgets it, and only a reservation is lost."""

    def __init__(self, clock: Clock, access: Access) -> None:
        self._clock = clock
        self._access = access
        self._seen: OrderedDict[str, Milliseconds] = OrderedDict()

    def saw(self, identity: Identity) -> None:
        key = identity_key(identity)
        self._seen[key] = self._clock.steady()
        self._seen.move_to_end(key)
        if len(self._seen) > _MOST_REMEMBERED:
            self._seen.popitem(last=False)

    def is_alive(self, identity: Identity | None) -> bool:
        state = self._access.pool_state(identity)
        if state is not None:
            # For the pool's reviewers the pool knows: the process is running and may claim again.
            return state is ReviewerState.ACTIVE
        seen = self._seen.get(identity_key(identity)) if identity else None
        return seen is not None and self._clock.steady() - seen <= ALIVE_MILLISECONDS


def find_review(reader: Reader, text: str) -> Review:
    """Find a review by its id or by a prefix of it. Refuses a prefix of no review or of several, and names them."""
    prefix = text.strip().lower()
    exact = reader.review(ReviewId(prefix)) if prefix.isascii() else None
    if exact is not None:
        return exact
    matches = reader.ids_with_prefix(prefix, _MATCHES_SHOWN + 1) if prefix and prefix.isascii() else []
    if len(prefix) < SHORTEST_PREFIX:
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"review_id: {text!r} is shorter than {SHORTEST_PREFIX} characters",
            _shown(matches),
        )
    if not matches:
        raise _not_found(text)
    if len(matches) > 1:
        raise BrokerError(Code.INVALID_ARGUMENT, f"review_id: {text!r} names several", _shown(matches))
    return present(reader.review(matches[0]), text)


def lock_review(tx: Transaction, text: str) -> Review:
    """Find a review in the same way, and lock it for a change."""
    prefix = text.strip().lower()
    exact = tx.lock_review(ReviewId(prefix)) if prefix.isascii() else None
    if exact is not None:
        return exact
    return present(tx.lock_review(find_review(tx, text).id), text)


def present(review: Review | None, text: str) -> Review:
    """Refuse a review that is gone: it may have been archived a moment ago."""
    if review is None:
        raise _not_found(text)
    return review


def _not_found(text: str) -> BrokerError:
    return BrokerError(Code.NOT_FOUND, f"there is no review {text[:64]!r}", NextStep(Next.LIST_REVIEWS))


def _shown(matches: list[ReviewId]) -> str:
    if not matches:
        return "Give at least the first six characters of a review's id."
    more = " …" if len(matches) > _MATCHES_SHOWN else ""
    return f"It could be {', '.join(matches[:_MATCHES_SHOWN])}{more}: give more characters."


@dataclass(frozen=True, kw_only=True, slots=True)
class Core:
    store: Store
    repository: Repository
    wakeups: Wakeups
    clock: Clock
    policy: Policy
    liveness: Liveness
    access: Access
    # The only project that the caller sees; None: all. The store shows nothing else.
    project: str | None = None

    def for_project(self, project: str) -> "Core":
        return replace(self, store=ProjectStore(self.store, project), project=project)

    def project_of(self, named: str | None) -> str | None:
        """Return the project of a call: the caller's own if it names none. Refuse another than its own."""
        if self.project is not None and named not in {None, self.project}:
            raise BrokerError(
                Code.FORBIDDEN,
                f"project: this token is for {self.project}, not for {named}",
                f"Pass project={self.project}, or leave it out.",
            )
        return self.project if self.project is not None else named

    async def find(self, review_id: str) -> Review:
        return await self.store.glance(lambda reader: find_review(reader, review_id))

    async def recalled(self, repeat: "Repeat | None", project: str | None) -> Any:
        """Read the answer to an earlier call with this key. None if there is none."""
        if repeat is None:
            return None
        return await self.store.glance(lambda reader: recalled(reader, self, repeat, project))

    async def change(
        self,
        review_id: str,
        repeat: "Repeat | None",
        command: Callable[[Transaction, Review], R | BrokerError],
        *,
        by_claim: ByClaim | None = None,
    ) -> R:
        """Run one command on one review. A refusal that was recorded is raised only after its commit."""

        def run(tx: Transaction) -> R | BrokerError:
            review = lock_review(tx, review_id)
            refused = by_claim.refusal(self.access, tx, review) if by_claim else None
            if refused is not None:
                return refused
            return once(tx, self, repeat, review.project, lambda: command(tx, review))

        result = await self.store.write(run)
        if isinstance(result, BrokerError):
            raise result
        return result

    async def saw(self, caller: Identity | None, review: Review | None = None) -> None:
        """Note that a caller acts under this name. If it holds the claim, its deadline is extended."""
        if caller is None:
            return
        self.liveness.saw(caller)
        if review is None or review.claim_expires_at is None:
            return
        later = claims.extend(review, caller=caller, policy=self.policy, now=self.clock.now())
        if later is None or later.claim_expires_at is None:
            return
        is_due = later.claim_expires_at - review.claim_expires_at >= _EXTEND_EVERY_MILLISECONDS
        if is_due or claims.is_unused(review, self.policy):
            await self.store.write(lambda tx: self._extend(tx, review, caller))

    def _extend(self, tx: Transaction, review: Review, caller: Identity) -> None:
        current = tx.lock_review(review.id)
        later = current and claims.extend(current, caller=caller, policy=self.policy, now=tx.now)
        if later:
            tx.extend_claim(later)


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeat:
    """A call that its caller may repeat: the tool, the key, and all other arguments."""

    tool: str
    key: str
    arguments: dict[str, Any]
    # Set by the call itself if the review, and with it the project, is not known in advance.
    project: str | None = None
    # Who proved to be the caller: each has its own keys.
    caller: str | None = None

    def key_in(self, project: str | None, limit: int) -> IdempotencyKey:
        payload = canonical(self.arguments).encode("utf-8", "surrogatepass")
        key = text("idempotency_key", self.key, limit)
        if self.caller is not None:
            key = hashlib.sha256(f"{self.caller}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()
        return IdempotencyKey(
            project=self.project or project or "",
            tool=self.tool,
            key=key,
            arguments_hash=hashlib.sha256(payload).hexdigest(),
        )


def recalled(reader: Reader, core: Core, repeat: Repeat | None, project: str | None) -> Any:
    """Read the answer to an earlier call with this key. None if there is none."""
    if repeat is None:
        return None
    return reader.recall(repeat.key_in(project, core.policy.limits.name), core.clock.now())


def taken(tx: Transaction, core: Core, repeat: Repeat | None, project: str | None) -> Any:
    """Take the call's key. Returns the answer to an earlier call with it, or None if this call is to be answered."""
    return None if repeat is None else tx.take(repeat.key_in(project, core.policy.limits.name))


def remembered(tx: Transaction, core: Core, repeat: Repeat | None, project: str | None, result: R) -> R:
    """Keep the answer for a repeated call, whose key was taken. A refusal is not kept: it may differ next time."""
    if repeat is not None and not isinstance(result, BrokerError):
        tx.remember(repeat.key_in(project, core.policy.limits.name), cast("dict[str, Any]", result))
    return result


def once(tx: Transaction, core: Core, repeat: Repeat | None, project: str | None, do: Callable[[], R]) -> R:
    """Run it, or answer as the first time."""
    kept = taken(tx, core, repeat, project)
    return cast("R", kept) if kept is not None else remembered(tx, core, repeat, project, do())
