"""Who may do what, and under which name; which tokens may be made."""

import re
from collections.abc import Iterable
from enum import StrEnum

from gsd_review_broker.domain.caller import Caller, Token
from gsd_review_broker.domain.model import Finding, Identity, Milliseconds, Review
from gsd_review_broker.domain.text import HUMAN_PREFIX, is_human, same_identity
from gsd_review_broker.domain.words import CallerKind, Role, TokenState
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep


class Right(StrEnum):
    READ = "read"
    PROPOSE = "propose"
    JUDGE = "judge"
    DISCUSS = "discuss"
    ACT_AS_PERSON = "act as a person"
    RUN_POOL = "run the pool"
    ADMINISTER = "administer"


# Without a token it also names the proposer.
AGENT_TYPE = "agent_type"

_EVERYTHING = frozenset(Right)
_RIGHTS: dict[CallerKind, frozenset[Right]] = {
    CallerKind.LOCAL: _EVERYTHING,
    CallerKind.ADMIN: _EVERYTHING,
    CallerKind.HUMAN: _EVERYTHING - {Right.ADMINISTER},
    CallerKind.PROPOSER: frozenset({Right.READ, Right.PROPOSE, Right.DISCUSS}),
    CallerKind.REVIEWER: frozenset({Right.READ, Right.JUDGE, Right.DISCUSS}),
    CallerKind.OBSERVER: frozenset({Right.READ}),
    CallerKind.UNKNOWN: frozenset(),
}


def refuse_without_right(caller: Caller, right: Right, action: str) -> None:
    if caller.kind is CallerKind.UNKNOWN:
        raise BrokerError(
            Code.UNAUTHENTICATED,
            "this token does not belong to a running reviewer",
            "A reviewer's token is valid only while its process runs: stop.",
        )
    if right not in _RIGHTS[caller.kind]:
        raise BrokerError(
            Code.FORBIDDEN,
            f"{action}: this is the token of {caller.identity}, and the role {caller.kind} does not allow it",
            f"The role {caller.kind} allows: {', '.join(sorted(_RIGHTS[caller.kind]))}.",
        )
    if right is Right.ADMINISTER and caller.project is not None:
        raise BrokerError(
            Code.FORBIDDEN,
            f"{action}: this is for the whole broker, and the token of {caller.identity} is for {caller.project}",
            "Use the token of an administrator without a project.",
        )


def refuse_other_names(caller: Caller, names: Iterable[tuple[str, Identity]], *, guarded: frozenset[str]) -> None:
    """Refuse a proven caller other names than its own, and all others a name of the pool's processes.

    `guarded` holds the arguments that have such a name."""
    for argument, name in names:
        proven = caller.proven_identity
        # What kind of agent it is remains its own to say.
        if proven is not None and argument != AGENT_TYPE and not same_identity(proven, name):
            raise BrokerError(
                Code.FORBIDDEN, f"{argument}: {proven} cannot act as {name}", f"Pass {argument}={proven}."
            )
        if proven is None and argument in guarded:
            raise BrokerError(
                Code.FORBIDDEN,
                f"{argument}: {name} is a reviewer that the broker started; only its own process acts as it",
                "Take a name of your own.",
            )


def side_refusal(caller: Caller, role: Role) -> BrokerError | None:
    """Refuse a proven proposer or reviewer the other side's role."""
    sides = {CallerKind.PROPOSER: Role.PROPOSER, CallerKind.REVIEWER: Role.REVIEWER}
    side = sides.get(caller.kind, role) if caller.proven else role
    if side is role:
        return None
    return BrokerError(
        Code.FORBIDDEN,
        f"sender_role: {caller.identity} is a {caller.kind} and cannot speak as the {role}",
        f"Speak as the {side}.",
    )


def claim_refusal(
    caller: Caller,
    review: Review,
    *,
    named: Identity | None = None,
    claim_generation: int | None = None,
    pool_managed: bool,
    is_verdict: bool = False,
) -> BrokerError | None:
    """Refuse a call that acts by another's claim, by its generation or as its side.

    Only a pool's process uses its claim, and a proven caller uses only its own. People and administrators may use
    another's, but not to judge in that name. The fence checks all other claims."""
    claimant = review.claimed_by
    if claimant is None or (named is not None and not same_identity(named, claimant)):
        return None
    if claim_generation is not None and claim_generation != review.claim_generation:
        return None
    proven = caller.proven_identity
    acts_for_others = not is_verdict and caller.kind in {CallerKind.HUMAN, CallerKind.ADMIN}
    if same_identity(proven, claimant) or (not pool_managed and (proven is None or acts_for_others)):
        return None
    return BrokerError(
        Code.FORBIDDEN,
        f"the claim on review {review.id} is {claimant}'s, and only its own process uses it",
        NextStep(Next.WRITE_AS_YOURSELF),
    )


def resolving_refusal(caller: Caller, finding: Finding) -> BrokerError | None:
    """Refuse a reviewer program that would settle a person's finding."""
    if not (caller.proven and caller.kind is CallerKind.REVIEWER and is_human(finding.raised_by)):
        return None
    return BrokerError(
        Code.FORBIDDEN,
        f"finding {finding.id} was raised by {finding.raised_by}, and {caller.identity} cannot resolve it",
        "Its proposer says what became of it; or answer in a message.",
    )


_DURATION = re.compile(r"([1-9][0-9]{0,5})([mhd])")
_MILLISECONDS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}


def expiry(duration: str | None, now: Milliseconds) -> Milliseconds | None:
    """Return when a token expires. None stays None: it does not expire."""
    if duration is None:
        return None
    match = _DURATION.fullmatch(duration)
    if match is None:
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"expires: {duration[:64]!r} is not a duration",
            "Give minutes, hours or days, for example 90m, 12h or 30d.",
        )
    return Milliseconds(now + int(match[1]) * _MILLISECONDS[match[2]])


def refuse_token_name(name: str, *, taken_by: Token | None, is_of_pool: bool, now: Milliseconds) -> None:
    """Refuse a name that another live token or a pool reviewer has: both would be one identity."""
    if is_human(name.casefold()):
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"name: {name} begins with {HUMAN_PREFIX}, which the broker adds for the role human",
            "Give the name without it.",
        )
    if is_of_pool:
        raise BrokerError(Code.CONFLICT, f"name: {name} is a reviewer that the broker started", "Choose another name.")
    if taken_by is not None and taken_by.state(now) is TokenState.LIVE:
        raise BrokerError(
            Code.CONFLICT,
            f"name: there is a live token {taken_by.name}, with the role {taken_by.role}",
            f"Choose another name, or revoke it first: tandem token revoke {taken_by.name}",
        )
