"""Property: whatever is edited, proposed, approved and done with git, no guarded branch ever holds a commit that no
approval or override covers. A model that knows only contents and approvals decides."""

import itertools
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.gated import Gated, gated
from tests.support.processes import git as plain_git

NAMES = ("a", "b")
# Files of one line: git merges them as a whole, and an approval cannot carry over.
Contents = dict[str, str]
_numbers = itertools.count()
_HEALTH = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

EDITS = st.tuples(st.just("edit"), st.sampled_from(NAMES), st.sampled_from("xyz"))
COMMANDS = st.sampled_from(
    ["approve", "commit", "commit -a", "amend", "side", "main", "merge", "pick", "reset", "revert", "plumb", "squash",
     "detach"]
)  # fmt: skip
STEPS = st.lists(st.one_of(EDITS, EDITS, COMMANDS, COMMANDS, COMMANDS), min_size=4, max_size=12)


class Model:
    """What was approved: the content of the changed files before and after."""

    def __init__(self, here: Gated) -> None:
        self.here = here
        self.approved: list[tuple[Contents, Contents]] = []

    def contents(self, tree: str) -> Contents:
        return {name: self.here.git("show", f"{tree}:{name}").out for name in NAMES}

    def staged(self) -> Contents:
        return {name: self.here.git("show", f":{name}").out for name in NAMES}

    def approve(self) -> None:
        before, after = self.contents("HEAD"), self.staged()
        if before != after:
            self.here.approve()
            self.approved.append((before, after))

    def is_covered(self, before: Contents, after: Contents) -> bool:
        """Nothing, or approved changes one after the other, each once."""
        if before == after:
            return True
        orders = (
            order
            for count in range(1, len(self.approved) + 1)
            for order in itertools.permutations(self.approved, count)
        )
        return any(_through(order, before) == after for order in itertools.islice(orders, 2_000))

    def uncovered(self) -> list[str]:
        lines = self.here.must("log", "--format=%H %P", "--branches", "--not", self.here.first).splitlines()
        parents = {words[0]: words[1:] for words in map(str.split, lines)}
        return [commit for commit in parents if not self._is_right(commit, parents)]

    def _is_right(self, commit: str, parents: dict[str, list[str]]) -> bool:
        first, *others = parents[commit]
        after = self.contents(commit)
        if others and after == self._merged(first, others[0]):
            return True
        return self.is_covered(self.contents(first), after) or self._is_in_range(commit, parents)

    def _merged(self, ours: str, theirs: str) -> Contents | None:
        base = self.contents(self.here.must("merge-base", ours, theirs))
        one, other = self.contents(ours), self.contents(theirs)
        if any(one[name] != base[name] != other[name] != one[name] for name in NAMES):
            return None
        return {name: one[name] if other[name] == base[name] else other[name] for name in NAMES}

    def _is_in_range(self, commit: str, parents: dict[str, list[str]]) -> bool:
        """A run of commits around it that together are one approved change."""
        runs = [run for run in _runs(parents) if commit in run]
        changes = [(self.contents(parents[run[0]][0]), self.contents(run[-1])) for run in runs]
        return any(_through([one], before) == after for before, after in changes for one in self.approved)


def _through(
    order: "tuple[tuple[Contents, Contents], ...] | list[tuple[Contents, Contents]]", start: Contents
) -> Contents:
    state = dict(start)
    for before, after in order:
        changed = [name for name in NAMES if before[name] != after[name]]
        if any(state[name] != before[name] for name in changed):
            return {}
        state |= {name: after[name] for name in changed}
    return state


def _runs(parents: dict[str, list[str]]) -> list[list[str]]:
    """Each commit followed by its descendants, one by one."""
    runs: list[list[str]] = []
    for commit in parents:
        run = [commit]
        while len(parents.get(run[0], ["", ""])) == 1 and parents[run[0]][0] in parents:
            run = [parents[run[0]][0], *run]
            runs.append(run)
    return runs


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Generator[Gated]:
    folder = tmp_path_factory.mktemp("property")
    with gated(folder, files={name: f"{name}\n" for name in NAMES}) as here:
        here.first = here.head()
        shutil.copytree(here.folder / ".git", folder / "git")
        yield here


def _fresh(here: Gated) -> None:
    """As it was at first, with other content: approvals of earlier runs count by content."""
    shutil.rmtree(here.folder / ".git")
    shutil.copytree(here.folder.parent / "git", here.folder / ".git", symlinks=True)
    plain_git(here.folder, "reset", "-q", "--hard")
    here.word = str(next(_numbers))


def _act(here: Gated, model: Model, step: "str | tuple[str, str, str]") -> None:
    match step:
        case (_, name, content):
            here.write(name, f"{here.word} {content}\n")
            here.git("add", "-A", "--", *NAMES)
        case "approve":
            model.approve()
        case "side":
            here.git("checkout", "-q", "-B", "side")
        case "revert" if here.head() == here.first:
            # It would delete every file, which is the same change in each run; an earlier one may have been approved.
            return
        case "plumb":
            tree = here.must("write-tree")
            commit = here.must("commit-tree", "-p", "HEAD", "-m", "plumbing", tree)
            here.git("update-ref", "refs/heads/main", commit)
            here.git("reset", "-q", "--hard")
        case _:
            here.git(*GIT[step])
            here.git("merge", "--abort")
            here.git("cherry-pick", "--abort")
            here.git("revert", "--abort")


GIT = {
    "commit": ("commit", "-q", "-m", "x"),
    "commit -a": ("commit", "-q", "--no-verify", "-am", "x"),
    "amend": ("commit", "-q", "--amend", "-m", "amended"),
    "main": ("checkout", "-q", "main"),
    "merge": ("merge", "-q", "--no-edit", "side", "main"),
    "pick": ("cherry-pick", "side"),
    "reset": ("reset", "-q", "--soft", "HEAD~1"),
    "revert": ("revert", "--no-edit", "HEAD"),
    "squash": ("merge", "-q", "--squash", "side"),
    "detach": ("checkout", "-q", "--detach"),
}


def require_covered(here: Gated, steps: "list[str | tuple[str, str, str]]") -> None:
    _fresh(here)
    model = Model(here)
    for step in steps:
        _act(here, model, step)
    assert model.uncovered() == []


@settings(max_examples=5, suppress_health_check=_HEALTH)
@given(STEPS)
def test_no_guarded_branch_holds_a_commit_that_nothing_covers(
    running: Gated, steps: "list[str | tuple[str, str, str]]"
) -> None:
    require_covered(running, steps)


@pytest.mark.torture
@settings(settings.get_profile("searching"), max_examples=200, suppress_health_check=_HEALTH)
@given(STEPS)
def test_no_guarded_branch_holds_such_a_commit_after_many_more_sequences(
    running: Gated, steps: "list[str | tuple[str, str, str]]"
) -> None:
    require_covered(running, steps)


def test_the_model_would_notice_a_commit_that_went_around(running: Gated, tmp_path: Path) -> None:
    _fresh(running)
    running.write("a", "around\n")
    running.must("-c", "core.hooksPath=/dev/null", "commit", "-qam", "around")
    assert Model(running).uncovered() == [running.head()]
