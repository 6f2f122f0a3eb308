"""Which tokens may be made."""

import pytest

from gsd_review_broker.domain.caller import Token
from gsd_review_broker.domain.model import Identity, Milliseconds
from gsd_review_broker.domain.rules import access
from gsd_review_broker.domain.words import CallerKind, TokenRole, TokenState
from gsd_review_broker.errors import BrokerError, Code

NOW = Milliseconds(1_000_000)


def token(role: TokenRole = TokenRole.REVIEWER, expires: int | None = None, revoked: int | None = None) -> Token:
    return Token(
        hash="0" * 64,
        name="ada",
        role=role,
        project="shop",
        created_at=Milliseconds(1),
        created_by=Identity("human:root"),
        expires_at=None if expires is None else Milliseconds(expires),
        revoked_at=None if revoked is None else Milliseconds(revoked),
    )


@pytest.mark.parametrize(("text", "minutes"), [("90m", 90), ("12h", 12 * 60), ("30d", 30 * 24 * 60)])
def test_a_duration_is_counted_in_minutes_hours_or_days(text: str, minutes: int) -> None:
    assert access.expiry(text, NOW) == NOW + minutes * 60_000


def test_without_a_duration_a_token_does_not_expire() -> None:
    assert access.expiry(None, NOW) is None


@pytest.mark.parametrize("text", ["", "30", "d", "0d", "-1d", "1.5h", "30s", "30D", "1w", "30d ", "1234567d", "३d"])
def test_anything_else_is_not_a_duration(text: str) -> None:
    with pytest.raises(BrokerError) as refused:
        access.expiry(text, NOW)
    assert refused.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("one", "state"),
    [
        (token(), TokenState.LIVE),
        (token(expires=NOW + 1), TokenState.LIVE),
        (token(expires=NOW), TokenState.EXPIRED),
        (token(revoked=1), TokenState.REVOKED),
        (token(expires=NOW, revoked=1), TokenState.REVOKED),
    ],
)
def test_a_token_is_live_until_it_expires_or_is_revoked(one: Token, state: TokenState) -> None:
    assert one.state(NOW) is state


@pytest.mark.parametrize("role", list(TokenRole))
def test_its_holder_is_known_by_its_name_and_role(role: TokenRole) -> None:
    caller = token(role).caller()
    assert caller.kind is CallerKind(role.value)
    assert caller.proven_identity == ("human:ada" if role is TokenRole.HUMAN else "ada")
    assert caller.project == "shop"


def refused_name(name: str, *, taken_by: Token | None = None, is_of_pool: bool = False) -> Code:
    with pytest.raises(BrokerError) as refused:
        access.refuse_token_name(name, taken_by=taken_by, is_of_pool=is_of_pool, now=NOW)
    return refused.value.code


def test_a_name_belongs_to_one_live_token_and_to_no_reviewer_of_the_pool() -> None:
    assert refused_name("ada", taken_by=token()) is Code.CONFLICT
    assert refused_name("codex-r1-0a1b2c3d", is_of_pool=True) is Code.CONFLICT
    access.refuse_token_name("ada", taken_by=token(expires=NOW), is_of_pool=False, now=NOW)
    access.refuse_token_name("ada", taken_by=None, is_of_pool=False, now=NOW)


@pytest.mark.parametrize("name", ["human:ada", "Human:ada"])
def test_a_name_does_not_pretend_to_be_a_person(name: str) -> None:
    assert refused_name(name) is Code.INVALID_ARGUMENT
