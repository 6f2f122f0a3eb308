"""Many commits at once, in many worktrees, against a broker that has other work: each is answered right."""

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.gated import Gated, gated


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Generator[Gated]:
    with gated(tmp_path_factory.mktemp("crowd")) as running:
        yield running


def commits(there: Gated, name: str, count: int) -> list[tuple[bool, bool]]:
    """For each commit: was it approved, and did it land?"""
    outcomes: list[tuple[bool, bool]] = []
    for number in range(count):
        is_approved = number % 2 == 0
        there.write("hello.txt", f"{name} {number}\n")
        there.must("add", "-A")
        if is_approved:
            there.approve()
        done = there.git("commit", "-q", "-m", f"{name} {number}")
        assert done.code == 0 or "without approval: hello.txt" in done.err, done
        outcomes.append((is_approved, done.code == 0))
        if done.code != 0:
            there.must("reset", "-q", "--hard")
    return outcomes


def require_right_answers(here: Gated, folder: Path, *, worktrees: int, each: int) -> None:
    names = [f"{folder.name}-{number}" for number in range(worktrees)]
    for name in names:
        here.must("worktree", "add", "-q", "-b", name, str(folder / name), "main")
    done = threading.Event()

    def keep_busy() -> None:
        call = here.process.client()
        while not done.is_set():
            call("list_reviews", limit=100)

    busy = threading.Thread(target=keep_busy)
    busy.start()
    try:
        with ThreadPoolExecutor(worktrees) as threads:
            there = [here.elsewhere(folder / name) for name in names]
            outcomes = list(threads.map(commits, there, names, [each] * worktrees))
    finally:
        done.set()
        busy.join()
    assert [outcome for outcome in outcomes if any(approved != landed for approved, landed in outcome)] == []
    for name in names:
        assert here.must("rev-list", "--count", f"main..{name}") == str((each + 1) // 2)
    status = here.tandem("gate", "status")
    assert (status["commits"], status["overridden"]) == ([], [])


def test_commits_in_three_worktrees_at_once_are_all_answered_right(here: Gated, tmp_path: Path) -> None:
    require_right_answers(here, tmp_path, worktrees=3, each=2)


@pytest.mark.torture
def test_a_hundred_commits_in_ten_worktrees_at_once_are_all_answered_right(here: Gated, tmp_path: Path) -> None:
    require_right_answers(here, tmp_path, worktrees=10, each=10)
