"""What every service uses: the ports, the policy, and the few steps that all commands share."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from gsd_review_broker.domain.audit import canonical
from gsd_review_broker.domain.model import Identity, Policy, Review
from gsd_review_broker.domain.rules import claims
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.store import IdempotencyKey, Reader, Store, Transaction
from gsd_review_broker.ports.world import Clock, Repository, Wakeups
from gsd_review_broker.service.access import Access, ByClaim
from gsd_review_broker.service.liveness import Liveness
from gsd_review_broker.service.lookup import find_review, lock_review
from gsd_review_broker.service.validation import text
from gsd_review_broker.service.within import ProjectStore

R = TypeVar("R")

# A claimant that reads all the time writes its new deadline once a second, not with each call.
_PUT_OFF_EVERY_MILLISECONDS = 1_000


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

    def within(self, project: str) -> "Core":
        return replace(self, store=ProjectStore(self.store, project), project=project)

    def project_of(self, named: str | None) -> str | None:
        """What is made for a project: without a name, for the caller's own; for another, it is refused."""
        if self.project is not None and named not in {None, self.project}:
            raise BrokerError(
                Code.FORBIDDEN,
                f"project: this token is for {self.project}, not for {named}",
                f"Pass project={self.project}, or leave it out.",
            )
        return self.project if self.project is not None else named

    async def find(self, review_id: str) -> Review:
        return await self.store.glance(lambda reader: find_review(reader, review_id))

    async def change(
        self,
        review_id: str,
        repeat: "Repeat | None",
        command: Callable[[Transaction, Review], R | BrokerError],
        *,
        by_claim: ByClaim | None = None,
    ) -> R:
        """One command on one review. A refusal that was recorded is raised only after its commit."""

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

    async def heard(self, caller: Identity | None, review: Review | None = None) -> None:
        """A caller acts under this name; if it holds the claim, its deadline is extended."""
        if caller is None:
            return
        self.liveness.heard(caller)
        if review is None or review.claim_expires_at is None:
            return
        later = claims.put_off(review, caller=caller, policy=self.policy, now=self.clock.now())
        if later is None or later.claim_expires_at is None:
            return
        is_due = later.claim_expires_at - review.claim_expires_at >= _PUT_OFF_EVERY_MILLISECONDS
        if is_due or claims.is_unused(review, self.policy):
            await self.store.write(lambda tx: self._put_off(tx, review, caller))

    def _put_off(self, tx: Transaction, review: Review, caller: Identity) -> None:
        current = tx.lock_review(review.id)
        later = current and claims.put_off(current, caller=caller, policy=self.policy, now=tx.now)
        if later:
            tx.put_off(later)


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeat:
    """A call that its caller may repeat: the tool, the key, and all other arguments."""

    tool: str
    key: str
    arguments: dict[str, Any]
    # Set by the call itself if the review, and with it the project, is not known in advance.
    project: str | None = None
    # Who proved to be the caller: each has its own keys.
    holder: str | None = None

    def within(self, project: str | None, limit: int) -> IdempotencyKey:
        payload = canonical(self.arguments).encode("utf-8", "surrogatepass")
        key = text("idempotency_key", self.key, limit)
        if self.holder is not None:
            key = hashlib.sha256(f"{self.holder}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()
        return IdempotencyKey(
            project=self.project or project or "",
            tool=self.tool,
            key=key,
            arguments_hash=hashlib.sha256(payload).hexdigest(),
        )


def recalled(reader: Reader, core: Core, repeat: Repeat | None, project: str | None) -> Any:
    """The answer to an earlier call with this key, or None."""
    if repeat is None:
        return None
    return reader.recall(repeat.within(project, core.policy.limits.name), core.clock.now())


def taken(tx: Transaction, core: Core, repeat: Repeat | None, project: str | None) -> Any:
    """Take the call's key. Returns the answer to an earlier call with it, or None if this call is to be answered."""
    return None if repeat is None else tx.take(repeat.within(project, core.policy.limits.name))


def remembered(tx: Transaction, core: Core, repeat: Repeat | None, project: str | None, result: R) -> R:
    """Keep the answer for a repeated call; its key was taken before."""
    if repeat is not None:
        tx.remember(repeat.within(project, core.policy.limits.name), cast("dict[str, Any]", result))
    return result


def once(tx: Transaction, core: Core, repeat: Repeat | None, project: str | None, do: Callable[[], R]) -> R:
    """Run it, or answer as the first time. A refusal is not kept: it may be different next time."""
    kept = taken(tx, core, repeat, project)
    if kept is not None:
        return cast("R", kept)
    result = do()
    return result if isinstance(result, BrokerError) else remembered(tx, core, repeat, project, result)
