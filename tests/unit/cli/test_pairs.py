"""Who proposes and who reviews, of the clients that are on the machine."""

import pytest

from gsd_review_broker.cli.setup_plan import PERSON, Pair, chosen_pair, every_pair, left_out, present_pair

BOTH = every_pair(["claude", "codex"])


def words(pairs: list[Pair]) -> list[tuple[str | None, str]]:
    return [(pair.proposer, pair.reviewer) for pair in pairs]


def test_both_directions_are_offered_and_a_person_for_each_proposer() -> None:
    assert words(BOTH) == [("claude", "codex"), ("codex", "claude"), ("claude", PERSON), ("codex", PERSON)]


def test_one_client_alone_is_reviewed_by_a_person() -> None:
    assert words(every_pair(["gemini"])) == [("gemini", PERSON)]


def test_without_a_client_nobody_proposes() -> None:
    assert words(every_pair([])) == [(None, PERSON)]


@pytest.mark.parametrize(
    ("proposer", "reviewer", "expected"),
    [
        (None, None, ("claude", "codex")),
        ("codex", None, ("codex", "claude")),
        (None, "claude", ("codex", "claude")),
        ("claude", PERSON, ("claude", PERSON)),
        (None, PERSON, ("claude", PERSON)),
        # Neither is on this machine: the user knows better.
        ("gemini", "opencode", ("gemini", "opencode")),
        ("gemini", None, ("gemini", PERSON)),
        (None, "opencode", (None, "opencode")),
    ],
)
def test_a_named_client_gets_the_best_partner(
    proposer: str | None, reviewer: str | None, expected: tuple[str | None, str]
) -> None:
    pair = chosen_pair(BOTH, None, proposer=proposer, reviewer=reviewer)
    assert (pair.proposer, pair.reviewer) == expected


def test_what_is_set_up_stays() -> None:
    present = present_pair({"codex": "proposer", "claude": "reviewer", "gemini": "observer"})
    assert present == Pair(proposer="codex", reviewer="claude")
    assert chosen_pair(BOTH, present, proposer=None, reviewer=None) == present
    assert present_pair({"codex": "proposer"}) == Pair(proposer="codex")
    assert present_pair({"codex": "reviewer"}) is None


@pytest.mark.parametrize(
    ("proposer", "reviewer", "expected", "leaving"),
    [
        (None, PERSON, ("codex", PERSON), ["claude"]),
        ("gemini", None, ("gemini", "claude"), ["codex"]),
        (None, "gemini", ("codex", "gemini"), ["claude"]),
        ("claude", None, ("claude", "codex"), []),
        (None, "codex", ("claude", "codex"), []),
        ("claude", "codex", ("claude", "codex"), []),
        ("gemini", "opencode", ("gemini", "opencode"), ["codex", "claude"]),
    ],
)
def test_the_partner_of_whoever_is_named_stays_and_who_is_left_out_leaves(
    proposer: str | None, reviewer: str | None, expected: tuple[str, str], leaving: list[str]
) -> None:
    present = Pair(proposer="codex", reviewer="claude")
    pair = chosen_pair(every_pair(["claude", "codex", "gemini"]), present, proposer=proposer, reviewer=reviewer)
    assert ((pair.proposer, pair.reviewer), left_out(present, pair)) == (expected, leaving)


def test_nobody_leaves_a_project_without_a_pair() -> None:
    assert left_out(None, Pair(proposer="codex")) == []
    assert left_out(Pair(proposer="codex"), Pair(proposer="codex", reviewer="claude")) == []
