"""The decision against a model that knows only contents and approvals, and tries every order of every set of them."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gsd_review_broker.domain.gate.decision import Approval, Commit, decide
from gsd_review_broker.domain.gate.records import Entry, Step, Steps
from tests.support.policies import gate_policy

# A tree: the content of each path, 0 where there is no file.
Tree = tuple[int, int, int]
_TREES = st.tuples(*(st.integers(0, 2) for _ in range(3)))
_POLICY = gate_policy(exempt=())


def entry(content: int) -> Entry:
    return Entry(b"100644", b"%040d" % content) if content else Entry(b"000000", b"0" * 40)


def change(before: Tree, after: Tree) -> Steps:
    pairs = zip(range(3), before, after, strict=True)
    return {b"%d" % path: Step(entry(old), entry(new)) for path, old, new in pairs if old != new}


def applied(tree: Tree, before: Tree, after: Tree) -> Tree | None:
    """The approved change on top of a tree; None where the tree is not what the change begins with."""
    result = list(tree)
    for path in range(3):
        if before[path] != after[path]:
            if tree[path] != before[path]:
                return None
            result[path] = after[path]
    return tuple(result)  # type: ignore[return-value]


def reachable(start: Tree, end: Tree, approved: list[tuple[Tree, Tree]]) -> bool:
    """Do some of the approved changes, each at most once, lead from one tree to the other?"""
    for count in range(1, len(approved) + 1):
        for chosen in itertools.permutations(approved, count):
            tree: Tree | None = start
            for before, after in chosen:
                tree = applied(tree, before, after) if tree is not None else None
            if tree == end:
                return True
    return False


@given(st.lists(_TREES, min_size=2, max_size=4), st.lists(st.tuples(_TREES, _TREES), max_size=3))
def test_exactly_what_the_approvals_lead_to_is_covered(trees: list[Tree], approved: list[tuple[Tree, Tree]]) -> None:
    approved = [pair for pair in approved if pair[0] != pair[1]]
    commits = [
        Commit(id=str(number), parents=(str(number - 1),), steps=change(before, after))
        for number, (before, after) in enumerate(itertools.pairwise(trees), 1)
    ]
    approvals = [
        Approval(review_id=str(number), by_person=False, steps=change(before, after))
        for number, (before, after) in enumerate(approved)
    ]
    expected = {
        commit.id
        for number, commit in enumerate(commits)
        if trees[number] == trees[number + 1]
        or reachable(trees[number], trees[number + 1], approved)
        or in_approved_range(trees, number, approved)
    }
    assert set(decide(commits, approvals, _POLICY)) == expected


def in_approved_range(trees: list[Tree], number: int, approved: list[tuple[Tree, Tree]]) -> bool:
    """Is there a range around this commit whose combined change equals one approved change?"""
    wanted = [change(before, after) for before, after in approved]
    return any(
        change(trees[first], trees[last]) in wanted
        for first in range(number + 1)
        for last in range(max(number + 1, first + 2), len(trees))
    )
