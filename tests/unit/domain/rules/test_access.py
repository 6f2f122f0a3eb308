"""Who may do what, and under which name."""

from typing import Any

import pytest

from gsd_review_broker.domain.caller import LOCAL, UNKNOWN, Caller, person, reviewer
from gsd_review_broker.domain.model import Identity
from gsd_review_broker.domain.rules import access
from gsd_review_broker.domain.rules.access import Right
from gsd_review_broker.domain.text import hidden_in, is_reserved
from gsd_review_broker.domain.words import CallerKind, Role
from gsd_review_broker.errors import BrokerError, Code
from tests.support.reviews import OTHER, PERSON, REVIEWER, claimed, created, finding

# The product's table, section Tokens.
TABLE = {
    CallerKind.PROPOSER: {Right.READ, Right.PROPOSE, Right.DISCUSS},
    CallerKind.REVIEWER: {Right.READ, Right.JUDGE, Right.DISCUSS},
    CallerKind.OBSERVER: {Right.READ},
    CallerKind.HUMAN: set(Right) - {Right.ADMINISTER},
    CallerKind.ADMIN: set(Right),
    CallerKind.LOCAL: set(Right),
}


@pytest.mark.parametrize("right", list(Right))
@pytest.mark.parametrize("kind", list(TABLE))
def test_each_kind_of_caller_has_the_rights_of_the_table(kind: CallerKind, right: Right) -> None:
    caller = Caller(kind=kind, identity=OTHER, proven=True)
    if right in TABLE[kind]:
        access.refuse_without_right(caller, right, "it")
        return
    with pytest.raises(BrokerError) as refused:
        access.refuse_without_right(caller, right, "it")
    assert refused.value.code is Code.FORBIDDEN


def test_a_token_that_is_nobodys_does_not_even_read() -> None:
    with pytest.raises(BrokerError) as refused:
        access.refuse_without_right(UNKNOWN, Right.READ, "it")
    assert refused.value.code is Code.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("caller", "name", "guarded", "allowed"),
    [
        (LOCAL, OTHER, False, True),
        (LOCAL, OTHER, True, False),
        (reviewer(REVIEWER), REVIEWER, True, True),
        (reviewer(REVIEWER), Identity("CODEX-R1"), True, True),
        (reviewer(REVIEWER), OTHER, False, False),
        (person(PERSON), OTHER, False, True),
    ],
)
def test_a_name_is_used_by_whom_it_belongs_to(caller: Caller, name: Identity, guarded: bool, allowed: bool) -> None:
    def names() -> None:
        access.refuse_other_names(
            caller, [("reviewer_id", name)], guarded=frozenset({"reviewer_id"} if guarded else ())
        )

    if allowed:
        names()
    else:
        with pytest.raises(BrokerError) as refused:
            names()
        assert refused.value.code is Code.FORBIDDEN


@pytest.mark.parametrize(
    ("caller", "more", "allowed"),
    [
        (LOCAL, {"pool_managed": False}, True),
        (LOCAL, {"pool_managed": True}, False),
        (LOCAL, {"pool_managed": True, "named": OTHER}, True),
        (LOCAL, {"pool_managed": True, "claim_generation": 0}, True),
        (reviewer(REVIEWER), {"pool_managed": True}, True),
        (reviewer(OTHER), {"pool_managed": False}, False),
        (Caller(kind=CallerKind.HUMAN, identity=PERSON, proven=True), {"pool_managed": False}, True),
        (Caller(kind=CallerKind.HUMAN, identity=PERSON, proven=True), {"pool_managed": True}, False),
    ],
)
def test_a_pools_claim_is_used_by_its_process_alone(caller: Caller, more: dict[str, Any], allowed: bool) -> None:
    refusal = access.claim_refusal(caller, claimed(), **more)
    assert (refusal is None) is allowed
    assert access.claim_refusal(caller, created().review, **more) is None


def test_a_proven_caller_speaks_for_its_own_side() -> None:
    assert access.side_refusal(reviewer(REVIEWER), Role.PROPOSER) is not None
    assert access.side_refusal(reviewer(REVIEWER), Role.REVIEWER) is None
    assert access.side_refusal(LOCAL, Role.PROPOSER) is None
    assert access.side_refusal(Caller(kind=CallerKind.HUMAN, identity=PERSON, proven=True), Role.PROPOSER) is None


def test_a_reviewer_program_does_not_resolve_what_a_person_found() -> None:
    of_person = finding(claimed(), raised_by=PERSON)
    assert access.resolving_refusal(reviewer(REVIEWER), of_person) is not None
    assert access.resolving_refusal(reviewer(REVIEWER), finding(claimed())) is None
    assert access.resolving_refusal(LOCAL, of_person) is None


@pytest.mark.parametrize("name", ["codex", "René", "\uff32ené", "a b", "日本", "human:ada"])
def test_a_name_that_can_be_seen_is_taken(name: str) -> None:
    assert (hidden_in(name), is_reserved(name)) == ([], False)
