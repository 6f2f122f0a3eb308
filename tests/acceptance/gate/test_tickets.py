"""Tickets: the commit that was approved last lands without a question, and a ticket lets nothing else through."""

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from gsd_review_broker.gate.receipts import remove_tickets
from tests.support.gated import Gated, gated


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Generator[Gated]:
    with gated(tmp_path_factory.mktemp("tickets")) as here:
        here.first = here.head()
        yield here


@pytest.fixture
def here(running: Gated, request: pytest.FixtureRequest) -> Generator[Gated]:
    """The hook can start nothing, so that only a ticket lets a commit through. Afterwards it is as it was."""
    hook = running.folder / ".git" / "hooks" / "reference-transaction"
    text = hook.read_text()
    config = running.folder / ".planning" / "review-broker.json"
    before = config.read_text()
    # A ticket counts only if the configuration is older.
    os.utime(config, (0, 0))
    lines = ["python=/bin/false" if line.startswith("python=") else line for line in text.splitlines(keepends=False)]
    remove_tickets(tickets(running))
    hook.write_text("\n".join(lines) + "\n")
    running.word = request.node.name
    yield running
    hook.write_text(text)
    config.write_text(before)
    os.utime(config, (0, 0))
    running.must("reset", "-q", "--hard", running.first)


def tickets(here: Gated) -> list[Path]:
    return list((here.folder / ".git" / "tandem" / "tickets").glob("*"))


def is_let_through(here: Gated, *arguments: str) -> bool:
    return here.git(*arguments).code == 0


def approved(here: Gated, more: str = "") -> None:
    here.stage(hello_txt=f"{here.word}{more}\n", other_txt=f"{here.word}{more}\n")
    here.approve()


def test_the_approved_commit_lands_without_a_question(here: Gated) -> None:
    here.stage(hello_txt=f"{here.word}\n")
    assert not is_let_through(here, "commit", "-m", "x")
    here.approve()
    assert [path.name.partition(".")[0] for path in tickets(here)] == [here.first]
    here.must("commit", "-m", "x")
    assert here.tandem("gate", "status")["commits"] == []


def test_names_that_git_quotes_new_files_deleted_files_and_modes_have_tickets(here: Gated) -> None:
    here.write('tab\tand "quote".txt', here.word)
    here.write("é.txt", here.word)
    here.write("a/b.txt", here.word)
    here.write("a.txt", here.word)
    (here.folder / "other.txt").unlink()
    (here.folder / "hello.txt").chmod(0o755)
    (here.folder / "link").symlink_to("hello.txt")
    here.must("add", "-A")
    here.approve()
    here.must("commit", "-m", "x")


@pytest.mark.parametrize("kind", ["byte", "mode", "added", "missing"])
def test_a_ticket_is_for_exactly_what_was_approved(here: Gated, kind: str) -> None:
    approved(here)
    if kind == "byte":
        here.stage(hello_txt=f"{here.word}!\n")
    elif kind == "mode":
        here.must("update-index", "--chmod=+x", "hello.txt")
    elif kind == "added":
        here.stage(long_txt=f"{here.word}\n")
    else:
        here.must("reset", "-q", "HEAD", "--", "other.txt")
    assert not is_let_through(here, "commit", "-m", "x")


def test_a_commit_that_brings_another_parent_or_another_base_is_asked_about(here: Gated) -> None:
    approved(here)
    tree = here.must("write-tree")
    aside = here.must("commit-tree", "-p", "HEAD", "-m", "aside", here.must("rev-parse", "HEAD^{tree}"))
    merge = here.must("commit-tree", "-p", "HEAD", "-p", aside, "-m", "x", tree)
    swapped = here.must("commit-tree", "-p", aside, "-p", "HEAD", "-m", "x", tree)
    later = here.must("commit-tree", "-p", aside, "-m", "x", tree)
    for commit in (merge, swapped, later):
        assert not is_let_through(here, "update-ref", "refs/heads/main", commit, here.head())
    plain = here.must("commit-tree", "-p", "HEAD", "-m", "x", tree)
    # git does not say what the branch held, so the hook cannot know either.
    assert not is_let_through(here, "update-ref", "refs/heads/main", plain)
    assert not is_let_through(here, "branch", "another", plain)
    here.must("update-ref", "refs/heads/main", plain, here.head())


def test_two_branches_at_once_are_asked_about(here: Gated) -> None:
    approved(here)
    plain = here.must("commit-tree", "-p", "HEAD", "-m", "x", here.must("write-tree"))
    lines = f"update refs/heads/main {plain} {here.head()}\ncreate refs/heads/another {plain}\n"
    assert here.git("update-ref", "--stdin", stdin=lines.encode()).code != 0


def test_a_commit_that_only_looks_like_the_approved_one_is_asked_about(here: Gated) -> None:
    """By a replace ref, a graft, or settings of the caller."""
    approved(here)
    plain = here.must("commit-tree", "-p", "HEAD", "-m", "x", here.must("write-tree"))
    here.stage(hello_txt="evil\n")
    evil = here.must("commit-tree", "-p", "HEAD", "-m", "x", here.must("write-tree"))
    here.must("replace", evil, plain)
    try:
        assert not is_let_through(here, "update-ref", "refs/heads/main", evil, here.head())
    finally:
        here.must("replace", "-d", evil)
    aside = here.must("commit-tree", "-p", evil, "-m", "aside", here.must("rev-parse", "HEAD^{tree}"))
    hidden = here.must("commit-tree", "-p", aside, "-m", "x", here.must("rev-parse", f"{plain}^{{tree}}"))
    grafts = here.folder / ".git" / "info" / "grafts"
    grafts.write_text(f"{hidden} {here.head()}\n")
    try:
        assert not is_let_through(here, "update-ref", "refs/heads/main", hidden, here.head())
    finally:
        grafts.unlink()
    assert not is_let_through(here, "-c", "diff.ignoreSubmodules=all", "commit", "-m", "x")


def test_a_ticket_older_than_the_configuration_does_not_count(here: Gated) -> None:
    approved(here)
    config = here.folder / ".planning" / "review-broker.json"
    config.write_text(json.dumps({"gate": {"mode": "block", "human_paths": ["hello.txt"]}}))
    assert not is_let_through(here, "commit", "-m", "x")


def test_an_approval_that_the_policy_does_not_take_gives_no_ticket(here: Gated) -> None:
    config = here.folder / ".planning" / "review-broker.json"
    config.write_text(json.dumps({"gate": {"mode": "block", "human_paths": ["hello.txt"]}}))
    approved(here)
    assert tickets(here) == []
    here.stage(hello_txt=f"{here.word} by a person\n")
    here.approve(by="human:ada")
    assert len(tickets(here)) == 1


def test_a_used_ticket_is_removed_and_its_commit_is_linked_to_the_review(running: Gated) -> None:
    os.utime(running.folder / ".planning" / "review-broker.json", (0, 0))
    remove_tickets(tickets(running))
    running.stage(hello_txt="used\n")
    review = running.approve()
    [ticket] = tickets(running)
    running.must("commit", "-m", "x")
    event = running.landed(running.head())
    assert (event["review_id"], event["metadata"]["because"]) == (review, "review")
    assert not ticket.exists()
    running.must("reset", "-q", "--hard", running.first)


def test_a_caller_that_reads_the_output_of_git_does_not_wait_for_the_report(running: Gated, tmp_path: Path) -> None:
    """The program that reports waits at a pipe until the test opens it, long after git is done."""
    waiting, wrapper = tmp_path / "waiting", tmp_path / "python"
    os.mkfifo(waiting)
    hook = running.folder / ".git" / "hooks" / "reference-transaction"
    text = hook.read_text()
    line = next(line for line in text.splitlines() if line.startswith("python="))
    real = line.removeprefix("python=")
    wrapper.write_text(f'#!/bin/sh\ncase "$*" in *landed*) exec cat {waiting} ;; esac\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    hook.write_text(text.replace(line, f"python={wrapper}"))
    try:
        running.must("commit", "--allow-empty", "-m", "empty")
        # Only now can it go on: opening a pipe waits for the other side.
        waiting.write_text("")
    finally:
        hook.write_text(text)
        running.must("reset", "-q", "--hard", running.first)
