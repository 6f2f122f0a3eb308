"""Which commits go with a refused one."""

from gsd_review_broker.cli.gsd_checkpoint import EarlyCommit, to_take_back, without_reverted


def commit(name: str, *paths: str, undoes: tuple[str, ...] = ()) -> EarlyCommit:
    files = frozenset(path.encode() for path in paths)
    return EarlyCommit(id=name, subject=name, paths=files, review_id=None, undoes=frozenset(undoes))


def test_a_refused_commit_goes_and_what_has_nothing_to_do_with_it_stays() -> None:
    assert to_take_back([commit("1", "a"), commit("2", "b"), commit("3", "c")], {"2"}) == ["2"]


def test_what_was_built_on_it_goes_too_and_the_newest_goes_first() -> None:
    commits = [commit("1", "a"), commit("2", "a", "b"), commit("3", "b"), commit("4", "c"), commit("5", "b", "d")]
    assert to_take_back(commits, {"1"}) == ["5", "3", "2", "1"]


def test_what_came_before_it_stays_even_in_the_same_file() -> None:
    assert to_take_back([commit("1", "a"), commit("2", "a")], {"2"}) == ["2"]


def test_a_commit_and_its_revert_cancel_each_other_out() -> None:
    commits = [commit("1", "a"), commit("2", "a", undoes=("1",)), commit("3", "a")]
    assert [one.id for one in without_reverted(commits)] == ["3"]
