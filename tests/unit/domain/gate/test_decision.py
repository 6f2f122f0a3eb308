"""Which commits an approval covers: contents and approvals alone decide."""

import pytest

from gsd_review_broker.domain.gate.decision import Approval, Because, Commit, decide
from gsd_review_broker.domain.gate.policy import GatePolicy, Mode, Override, Patterns, stricter
from gsd_review_broker.domain.gate.records import Entry, Step, Steps, composed, parse_records, raw_records
from tests.support.policies import gate_policy

ABSENT = Entry(b"000000", b"0" * 40)
POLICY = gate_policy(mode=Mode.BLOCK)


def entry(content: str) -> Entry:
    return Entry(b"100644", content.encode().hex().ljust(40, "0").encode()) if content else ABSENT


def steps(**changes: str) -> Steps:
    """`name="before>after"`; nothing on one side means that the file is not there."""
    pairs = {name.encode(): change.split(">") for name, change in changes.items()}
    return {path: Step(entry(old), entry(new)) for path, (old, new) in pairs.items()}


def approval(name: str, *, by: str = "codex", **changes: str) -> Approval:
    return Approval(review_id=name, by_person=by.startswith("human:"), steps=steps(**changes))


def commit(name: str = "c", *, parent: str = "p", **changes: str) -> Commit:
    return Commit(id=name, parents=(parent,), steps=steps(**changes))


def covered(commits: list[Commit], approvals: list[Approval], policy: GatePolicy = POLICY) -> dict[str, str]:
    return {name: answer.because.value for name, answer in decide(commits, approvals, policy).items()}


@pytest.mark.parametrize(
    ("change", "approvals", "because"),
    [
        ({"f": "a>b"}, [approval("r", f="a>b")], "review"),
        ({"f": "a>b"}, [approval("r", f="a>c")], None),
        ({"f": "x>b"}, [approval("r", f="a>b")], None),
        ({"f": "a>b", "g": ">x"}, [approval("r", f="a>b")], None),
        ({"f": "a>b"}, [approval("r", f="a>b", g=">x")], None),
        ({"f": "a>b", "g": ">x"}, [approval("r", f="a>b"), approval("s", g=">x")], "reviews"),
        ({"f": "a>c"}, [approval("s", f="b>c"), approval("r", f="a>b")], "reviews"),
        ({"f": "a>c"}, [approval("r", f="a>b"), approval("s", f="b>c", g=">x")], None),
        # What one review adds and the next takes away again is not in the squash.
        ({"f": "a>c"}, [approval("r", f="a>b", g=">x"), approval("s", f="b>c", g="x>")], "reviews"),
        # One review is applied only once, and whole.
        ({"f": "a>a2"}, [approval("r", f="a>b"), approval("s", f="b>a")], None),
        ({}, [], "empty"),
    ],
)
def test_a_commit_is_covered_by_exactly_the_approved_records(
    change: dict[str, str], approvals: list[Approval], because: str | None
) -> None:
    assert covered([commit(**change)], approvals) == ({"c": because} if because else {})


def test_a_range_is_covered_by_one_review_of_its_combined_change() -> None:
    commits = [commit("1", parent="0", f="a>b"), commit("2", parent="1", f="b>c", g=">x")]
    assert covered(commits, [approval("r", f="a>c", g=">x")]) == {"1": "range", "2": "range"}


def test_a_range_that_comes_back_to_where_it_began_is_not_covered() -> None:
    commits = [commit("1", parent="0", f="a>secret"), commit("2", parent="1", f="secret>a")]
    assert covered(commits, []) == {}


def test_a_range_ends_at_a_merge_and_at_another_line_of_history() -> None:
    merge = Commit(id="2", parents=("1", "x"), steps=steps(g=">y"))
    commits = [commit("1", parent="0", f="a>b"), merge, commit("3", parent="9", f="b>c")]
    assert covered(commits, [approval("r", f="a>c")]) == {}


def test_a_merge_that_git_makes_itself_passes() -> None:
    merge = Commit(id="m", parents=("1", "2"), steps=steps(f="a>b"), is_clean_merge=True)
    assert decide([merge], [], POLICY)["m"].because is Because.MERGE


def test_exempt_paths_are_left_out_on_both_sides() -> None:
    policy = gate_policy(exempt=(Patterns(["notes/"]),))
    change = steps(f="a>b") | {b"notes/today": Step(ABSENT, entry("x"))}
    only_notes = Commit(id="n", steps={b"notes/x": Step(ABSENT, entry("y"))})
    both = Commit(id="b", steps=change)
    wider = Approval(review_id="r", by_person=False, steps={**steps(f="a>b"), b"notes/z": Step(ABSENT, entry("z"))})
    assert covered([only_notes, both], [wider], policy) == {"n": "exempt", "b": "review"}


def test_paths_that_need_a_person_are_covered_by_a_persons_approval_alone() -> None:
    policy = gate_policy(human=(Patterns(["f"]),))
    assert covered([commit(f="a>b")], [approval("r", f="a>b")], policy) == {}
    assert covered([commit(f="a>b")], [approval("r", by="human:ada", f="a>b")], policy) == {"c": "review"}
    # The other half of a squash may be an agent's.
    halves = [approval("r", by="human:ada", f="a>b"), approval("s", g=">x")]
    assert covered([commit(f="a>b", g=">x")], halves, policy) == {"c": "reviews"}


@pytest.mark.parametrize(
    ("lines", "path", "matches"),
    [
        (["*.md"], "a/b.md", True),
        (["/*.md"], "a/b.md", False),
        (["a/*.md"], "a/b.md", True),
        (["a/*.md"], "x/a/b.md", False),
        (["**/a"], "x/y/a", True),
        (["a/**/b"], "a/b", True),
        (["a/**/b"], "a/x/y/b", True),
        (["a/**"], "a/x/y", True),
        (["a/**"], "a", False),
        (["doc/"], "doc/x", True),
        (["doc/"], "doc", False),
        (["doc"], "x/doc/y", True),
        ([".planning/", "!*-PLAN.md"], ".planning/phases/01/01-01-PLAN.md", False),
        ([".planning/", "!*-PLAN.md"], ".planning/STATE.md", True),
        (["!x", "x"], "x", True),
        (["# no", "", "\\#yes"], "#yes", True),
        (["[a-c]?.txt"], "bz.txt", True),
        (["[!a-c]x"], "bx", False),
        (["[!a-c]x"], "dx", True),
        (["a["], "a[", False),
        (["a\\*"], "a*", True),
        (["a\\*"], "ab", False),
        (["x\\ "], "x ", True),
        (["x  "], "x", True),
        (["/"], "x", False),
        (["[z-a]"], "b", False),
        (["*"], "a\nb", True),
    ],
)
def test_paths_are_named_in_gitignore_syntax(lines: list[str], path: str, matches: bool) -> None:
    assert Patterns(lines).match(path.encode()) is matches


def test_of_two_policies_the_stricter_values_count() -> None:
    user = {"mode": "warn", "branches": ["main"], "exempt_paths": ["docs/", "notes/"], "human_paths": ["a"]}
    project = {"mode": "block", "branches": ["release/*"], "exempt_paths": ["notes/"], "human_paths": ["b"]}
    policy = stricter(user, project | {"override": "nobody"})
    assert policy.mode is Mode.BLOCK
    assert [policy.guards(name) for name in ("main", "release/1", "wip")] == [True, True, False]
    assert [policy.is_exempt(path) for path in (b"docs/x", b"notes/x")] == [False, True]
    assert [policy.needs_person(path) for path in (b"a", b"b", b"c")] == [True, True, False]
    assert policy.override is Override.NOBODY


def test_a_value_that_nobody_wrote_is_the_default() -> None:
    policy = stricter({}, {"mode": "off"})
    assert policy.mode is Mode.OFF
    assert policy.guards("anything")
    assert policy.is_exempt(b".planning/STATE.md")


@pytest.mark.parametrize(
    "section", [{"mode": "strict"}, {"mod": "off"}, {"branches": "main"}, {"exempt_paths": [1]}, {"override": "all"}]
)
def test_a_policy_that_cannot_be_understood_is_refused(section: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="gate"):
        stricter(section)


def test_records_are_read_and_written_as_git_prints_them() -> None:
    link = Step(Entry(b"100644", b"a" * 40), Entry(b"120000", b"b" * 40))
    change = steps(f="a>b", g=">x", h="y>") | {b"l": link}
    raw = raw_records(change)
    assert parse_records(raw) == change
    assert [field[-1:] for field in raw.split(b"\0")[:-1:2]] == [b"A", b"D", b"M", b"T"]
    for broken in (b"x", b":1 2 3 4 M\0path", b"100644 100644 a b M\0p\0", b":1 2\0p\0"):
        with pytest.raises(ValueError, match="record"):
            parse_records(broken)


def test_changes_that_do_not_follow_each_other_have_no_combined_change() -> None:
    assert composed([steps(f="a>b"), steps(f="c>d")]) is None
    assert composed([steps(f="a>b"), steps(f="b>a")]) == {}
