"""Which tokens may be made: their names and how long they are valid."""

import re

from gsd_review_broker.domain.identity import HUMAN_PREFIX, is_human
from gsd_review_broker.domain.model import Milliseconds
from gsd_review_broker.domain.tokens import Token
from gsd_review_broker.domain.words import TokenState
from gsd_review_broker.errors import BrokerError, Code

_DURATION = re.compile(r"([1-9][0-9]{0,5})([mhd])")
_MILLISECONDS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}


def expiry(duration: str | None, now: Milliseconds) -> Milliseconds | None:
    """None stays None: the token does not expire."""
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
    """Two live tokens with one name would be one identity, and so would a token with a pool reviewer's name."""
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
