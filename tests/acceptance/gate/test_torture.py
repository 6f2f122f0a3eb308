"""The gate's torture table: every way that content gets into a branch, with the right answer and its reason."""

import shlex
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.gated import Gated, gated
from tests.support.processes import git as plain_git
from tests.support.tandem import Said
from tests.support.waiting import until


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Generator[Gated]:
    folder = tmp_path_factory.mktemp("gate")
    with gated(folder) as here:
        shutil.copytree(here.folder / ".git", folder / "git")
        yield here


@pytest.fixture
def here(running: Gated, request: pytest.FixtureRequest) -> Gated:
    """The repository as it was at first. Approvals stay, and count by content: each test writes its own."""
    shutil.rmtree(running.folder / ".git")
    shutil.copytree(running.folder.parent / "git", running.folder / ".git", symlinks=True)
    # First, because attributes in the work tree decide what git writes there.
    plain_git(running.folder, "clean", "-qffdx", "-e", ".planning")
    plain_git(running.folder, "reset", "-q", "--hard")
    running.word = request.node.name
    return running


def words(here: Gated, text: str = "") -> str:
    return f"{here.word}{text}\n"


def refused(said: Said, *names: str) -> None:
    assert said.code != 0, said
    assert "tandem gate: refused" in said.err, said.err
    for name in names:
        assert name in said.err, said.err


def reasons(here: Gated, range_: str = "HEAD~1..HEAD") -> list[str | None]:
    said = here.tandem.run("gate", "check", range_, "--json")
    assert said.code in {0, 5}, said
    return [row.get("because") for row in said.json["commits"]]


@pytest.mark.parametrize("flags", [(), ("--no-verify",), ("-a",)], ids=["plain", "no-verify", "all"])
def test_a_commit_passes_with_approval_and_not_without(here: Gated, flags: tuple[str, ...]) -> None:
    here.write("hello.txt", words(here))
    if flags != ("-a",):
        here.must("add", "-A")
    refused(here.git("commit", *flags, "-m", "x"), "hello.txt")
    here.approve(here.diff("HEAD"))
    here.must("commit", *flags, "-m", "x")
    assert reasons(here) == ["review"]


def test_a_commit_of_some_paths_is_judged_by_those_paths(here: Gated) -> None:
    here.stage(hello_txt=words(here), other_txt=words(here))
    here.approve(here.diff("HEAD", "--", "hello.txt"))
    refused(here.git("commit", "-m", "both"), "other.txt")
    here.must("commit", "-m", "one", "--", "hello.txt")
    assert reasons(here) == ["review"]


def test_an_amended_message_passes_and_amended_content_does_not(here: Gated) -> None:
    # A file of its own: the nearest review could otherwise be that of another test.
    here.stage(amended_txt=words(here))
    here.approve()
    here.must("commit", "-m", "x")
    here.must("commit", "--amend", "-m", "other words")
    here.stage(amended_txt=words(here, " more"))
    refused(here.git("commit", "--amend", "--no-edit"), "changed after that in amended.txt")


def test_a_clean_rebase_keeps_the_approval(here: Gated) -> None:
    here.must("checkout", "-q", "-b", "topic")
    here.stage(hello_txt=words(here))
    here.approve()
    here.must("commit", "-m", "topic")
    here.must("checkout", "-q", "main")
    here.stage(other_txt=words(here))
    here.approve()
    here.must("commit", "-m", "main")
    here.must("checkout", "-q", "topic")
    here.must("rebase", "-q", "main")
    assert reasons(here) == ["review"]


def _two(here: Gated) -> None:
    for name in ("hello.txt", "other.txt"):
        here.write(name, words(here))
        here.must("add", "-A")
        here.approve()
        here.must("commit", "-m", name)


def test_an_interactive_rebase_may_squash_approved_commits(here: Gated) -> None:
    _two(here)
    here.must("rebase", "-q", "-i", "HEAD~2", GIT_SEQUENCE_EDITOR="sed -i -e '2s/^pick/squash/'")
    assert reasons(here) == ["reviews"]


def test_an_interactive_rebase_that_edits_a_commit_is_refused(here: Gated) -> None:
    _two(here)
    before = here.head()
    here.must("rebase", "-q", "-i", "HEAD~2", GIT_SEQUENCE_EDITOR="sed -i -e '1s/^pick/edit/'")
    here.stage(hello_txt=words(here, " edited"))
    here.must("commit", "--amend", "--no-edit")
    refused(here.git("rebase", "--continue"), "hello.txt")
    assert here.head("main") == before


def _diverged(here: Gated, *, same_file: bool) -> None:
    here.must("checkout", "-q", "-b", "side")
    here.stage(hello_txt=words(here, " side"))
    here.approve()
    here.must("commit", "-m", "side")
    here.must("checkout", "-q", "main")
    here.write("hello.txt" if same_file else "other.txt", words(here, " main"))
    here.must("add", "-A")
    here.approve()
    here.must("commit", "-m", "main")


def test_a_clean_merge_passes(here: Gated) -> None:
    _diverged(here, same_file=False)
    here.must("merge", "-q", "--no-edit", "side")
    assert "merge" in reasons(here)


def test_a_merge_with_something_added_to_it_is_refused(here: Gated) -> None:
    _diverged(here, same_file=False)
    here.must("merge", "-q", "--no-commit", "side")
    here.stage(long_txt=words(here, " evil"))
    refused(here.git("commit", "--no-edit"), "long.txt")


def test_a_conflict_resolution_is_new_content(here: Gated) -> None:
    _diverged(here, same_file=True)
    assert here.git("merge", "-q", "side").code != 0
    here.stage(hello_txt=words(here, " both"))
    refused(here.git("commit", "--no-edit"), "hello.txt")
    here.approve()
    here.must("commit", "--no-edit")
    assert "review" in reasons(here)


def test_a_cherry_pick_of_approved_content_passes(here: Gated) -> None:
    here.must("checkout", "-q", "-b", "side")
    here.stage(hello_txt=words(here))
    here.approve()
    here.must("commit", "-m", "side")
    here.must("checkout", "-q", "main")
    here.stage(other_txt=words(here))
    here.approve()
    here.must("commit", "-m", "main")
    here.must("cherry-pick", "side")
    assert reasons(here) == ["review"]


def test_a_revert_is_new_content(here: Gated) -> None:
    here.stage(hello_txt=words(here))
    here.approve()
    here.must("commit", "-m", "x")
    refused(here.git("revert", "--no-edit", "HEAD"), "hello.txt")
    here.must("revert", "--no-commit", "HEAD")
    here.approve()
    here.must("commit", "-m", "Revert")


def test_a_reset_passes(here: Gated) -> None:
    here.stage(hello_txt=words(here))
    here.approve()
    here.must("commit", "-m", "x")
    here.must("reset", "-q", "--hard", "HEAD~1")
    here.must("reset", "-q", "--hard", "HEAD@{1}")


def test_plumbing_is_judged_too(here: Gated) -> None:
    here.stage(hello_txt=words(here))
    commit = here.must("commit-tree", "-p", "HEAD", "-m", "x", here.must("write-tree"))
    refused(here.git("update-ref", "refs/heads/main", commit), "hello.txt")
    refused(here.git("branch", "another", commit), "hello.txt")
    here.approve()
    here.must("update-ref", "refs/heads/main", commit)


def test_another_worktree_has_the_same_gate(here: Gated, tmp_path: Path) -> None:
    here.must("worktree", "add", "-q", "-b", "agent", str(tmp_path / "tree"))
    there = here.elsewhere(tmp_path / "tree")
    there.stage(hello_txt=words(here))
    refused(there.git("commit", "--no-verify", "-m", "x"), "hello.txt")
    there.approve()
    there.must("commit", "-m", "x")


def test_a_mailed_patch_is_judged(here: Gated, tmp_path: Path) -> None:
    here.must("checkout", "-q", "--detach")
    here.stage(hello_txt=words(here))
    here.must("commit", "-m", "mailed")
    mail = here.git("format-patch", "-1", "--stdout").out
    diff = here.diff("HEAD~1..HEAD")
    here.must("checkout", "-q", "main")
    refused(here.git("am", "-q", stdin=mail.encode()), "hello.txt")
    here.git("am", "--abort")
    here.approve(diff)
    here.must("am", "-q", stdin=mail.encode())
    assert reasons(here) == ["review"]


def test_stash_notes_tags_and_a_detached_head_pass(here: Gated) -> None:
    here.write("hello.txt", words(here))
    here.must("stash")
    here.must("stash", "pop")
    here.must("notes", "add", "-m", "x", "HEAD")
    here.must("tag", "-a", "-m", "x", "v1")
    here.must("checkout", "-q", "--detach")
    here.must("commit", "-q", "-am", "aside")


def test_a_submodule_bump_is_judged_even_where_it_is_to_be_ignored(here: Gated) -> None:
    first = here.head()
    entry = f"160000,{first},module"
    here.write(".gitmodules", f'[submodule "{words(here).strip()}"]\n\tpath = module\n\turl = ./x\n\tignore = all\n')
    here.must("add", ".gitmodules")
    here.must("update-index", "--add", "--cacheinfo", entry)
    refused(here.git("commit", "-m", "x"), ".gitmodules", "module")
    here.approve(here.diff("--cached", "--ignore-submodules=none"))
    here.must("commit", "-m", "x")
    here.must("update-index", "--cacheinfo", f"160000,{here.head()},module")
    refused(here.git("commit", "-m", "bump"), "module")


@pytest.mark.parametrize("kind", ["byte", "white space", "mode", "added", "missing"])
def test_any_difference_from_what_was_approved_is_refused(here: Gated, kind: str) -> None:
    here.stage(hello_txt=words(here), other_txt=words(here))
    here.approve()
    if kind == "byte":
        here.write("hello.txt", words(here).replace("t", "T", 1))
    elif kind == "white space":
        here.write("hello.txt", words(here, " "))
    elif kind == "mode":
        (here.folder / "hello.txt").chmod(0o755)
    elif kind == "added":
        here.write("extra.txt", words(here))
    else:
        here.must("checkout", "HEAD", "--", "other.txt")
    here.must("add", "-A")
    name = {"added": "extra.txt", "missing": "hello.txt"}.get(kind, "hello.txt")
    refused(here.git("commit", "-m", "x"), name, "Next: tandem")


def test_an_approval_carries_over_when_another_change_landed_in_the_file(here: Gated) -> None:
    text = (here.folder / "long.txt").read_text()
    here.write("long.txt", text.replace("line 50\n", words(here)))
    here.must("add", "-A")
    review = here.approve()
    mine = here.diff()
    here.must("reset", "-q", "--hard")
    here.write("long.txt", text.replace("line 5\n", words(here, " first")))
    here.must("add", "-A")
    here.approve()
    here.must("commit", "-m", "another")
    here.must("apply", "--index", stdin=mine.encode())
    here.must("commit", "-m", "mine")
    said = here.tandem("gate", "check", "HEAD~1..HEAD")
    assert (said["commits"][0]["because"], said["commits"][0]["reviews"]) == ("carried", [review])
    here.write("long.txt", (here.folder / "long.txt").read_text().replace("line 51\n", ""))
    here.must("add", "-A")
    refused(here.git("commit", "--amend", "--no-edit"), "long.txt")


def test_approved_content_on_another_base_is_another_change(here: Gated) -> None:
    here.stage(hello_txt="x\n" + words(here))
    here.approve()
    here.must("reset", "-q", "--hard")
    here.stage(hello_txt=words(here, " base"))
    here.approve()
    here.must("commit", "-m", "base")
    here.stage(hello_txt="x\n" + words(here))
    refused(here.git("commit", "-m", "x"), "hello.txt")


def test_an_old_approval_counts_for_its_own_content_alone(here: Gated) -> None:
    here.stage(hello_txt=words(here))
    review = here.judge(here.propose(), "changes_requested")
    first = here.diff()
    here.stage(hello_txt=words(here, " better"))
    here.call("create_review", review_id=review, intent="Again", agent_type="gsd-executor", agent_role="proposer",
              phase="1", diff=here.diff())  # fmt: skip
    here.judge(review)
    here.must("reset", "-q", "--hard")
    here.must("apply", "--index", stdin=first.encode())
    refused(here.git("commit", "-m", "the first revision"), review)


def test_a_pending_review_is_named_with_the_way_to_wait_for_it(here: Gated) -> None:
    (here.folder / "pending.txt").write_text(words(here))
    here.must("add", "-A")
    review = here.propose()
    refused(here.git("commit", "-m", "x"), f"nearest review {review} is pending", f"Next: tandem wait {review}")


def _landed(here: Gated, **contents: str) -> None:
    here.stage(**contents)
    here.approve()
    here.must("commit", "-m", "x")
    here.landed(here.head())


def test_a_pending_review_is_named_before_an_approval_that_has_landed(here: Gated) -> None:
    _landed(here, near_txt=words(here))
    here.stage(near_txt=words(here, " more"))
    review = here.propose()
    refused(here.git("commit", "-m", "more"), f"nearest review {review} is pending", f"Next: tandem wait {review}")


def test_an_approval_for_another_base_is_named_as_such(here: Gated) -> None:
    _landed(here, stale_txt=words(here, " first"))
    here.stage(stale_txt=words(here, " last"))
    review = here.approve()
    here.must("reset", "-q", "--hard")
    _landed(here, stale_txt=words(here, " second"))
    here.stage(stale_txt=words(here, " last"))
    refused(here.git("commit", "-m", "last"), f"nearest review {review} is approved for another base", "Next: tandem")


def test_a_path_of_people_needs_a_persons_approval(here: Gated) -> None:
    config = here.folder / ".planning" / "review-broker.json"
    before = config.read_text()
    config.write_text('{"gate": {"mode": "block", "human_paths": ["/deploy/"]}}')
    try:
        here.write("deploy/run.sh", words(here))
        here.must("add", "-A")
        review = here.approve()
        person = f"nearest review {review} is approved, but these paths need a person's approval"
        refused(here.git("commit", "-m", "x"), person, f"Next: tandem open {review}")
        here.approve(by="human:ada")
        here.must("commit", "-m", "x")
        assert reasons(here) == ["review"]
    finally:
        config.write_text(before)


def test_binary_content_and_renames_are_judged_by_every_byte(here: Gated) -> None:
    here.write("blob", b"\0" + words(here).encode())
    here.must("mv", "other.txt", "renamed.txt")
    here.must("add", "-A")
    here.approve(here.diff("--cached", "-M"))
    here.write("blob", b"\1" + words(here).encode())
    here.must("add", "-A")
    refused(here.git("commit", "-m", "x"), "blob", "other.txt", "renamed.txt")
    here.write("blob", b"\0" + words(here).encode())
    here.must("add", "-A")
    here.must("commit", "-m", "x")
    assert reasons(here) == ["review"]


def test_commits_of_an_unguarded_line_do_not_slip_in_by_a_fast_forward(here: Gated) -> None:
    config = here.folder / ".planning" / "review-broker.json"
    before = config.read_text()
    config.write_text('{"gate": {"mode": "block", "branches": ["main", "release/*"]}}')
    try:
        here.must("checkout", "-q", "-b", "wip")
        here.stage(hello_txt=words(here))
        here.must("commit", "-m", "wip")
        here.must("checkout", "-q", "main")
        refused(here.git("merge", "-q", "--ff-only", "wip"), "hello.txt")
        refused(here.git("branch", "release/1", "wip"), "hello.txt")
        here.approve(here.diff("main..wip"))
        here.must("merge", "-q", "--ff-only", "wip")
    finally:
        config.write_text(before)


def test_a_range_that_is_one_review_passes_together(here: Gated) -> None:
    here.must("checkout", "-q", "--detach")
    for name in ("hello.txt", "other.txt"):
        here.write(name, words(here))
        here.must("commit", "-q", "-am", name)
    tip = here.head()
    here.must("checkout", "-q", "main")
    refused(here.git("merge", "-q", "--ff-only", tip), "hello.txt", "other.txt")
    here.approve(here.diff(f"main..{tip}"))
    here.must("merge", "-q", "--ff-only", tip)
    assert reasons(here, "HEAD~2..HEAD") == ["range", "range"]


def test_fetched_commits_pass(here: Gated, tmp_path: Path) -> None:
    plain_git(tmp_path, "clone", "-q", str(here.folder), "other")
    other = tmp_path / "other"
    (other / "hello.txt").write_text(words(here))
    plain_git(other, "commit", "-q", "-am", "theirs")
    here.must("remote", "add", "origin", str(other))
    here.must("fetch", "-q", "origin")
    here.must("merge", "-q", "--ff-only", "origin/main")


def test_planning_files_pass_and_plans_do_not(here: Gated) -> None:
    here.write(".planning/STATE.md", words(here))
    here.must("add", "-f", ".planning/STATE.md")
    here.must("commit", "-m", "state")
    here.write(".planning/01-01-PLAN.md", words(here))
    here.must("add", "-f", ".planning/01-01-PLAN.md")
    refused(here.git("commit", "-m", "plan"), "01-01-PLAN.md")


def test_what_goes_around_the_hook_is_found(here: Gated) -> None:
    here.stage(hello_txt=words(here))
    here.must("-c", "core.hooksPath=/dev/null", "commit", "-m", "around")
    said = here.tandem.run("gate", "status", "--json")
    assert (said.code, [row["commit"] for row in said.json["commits"]]) == (5, [here.head()])
    checked = here.tandem.run("gate", "check", "HEAD~1..HEAD")
    assert checked.code == 5
    # What it says to run next works.
    following = checked.out.rstrip().rpartition("Next: tandem ")[2].replace(" --wait", "")
    here.judge(here.tandem(*shlex.split(following))["review_id"])
    assert here.tandem("gate", "status")["commits"] == []
    (here.folder / ".git" / "hooks" / "reference-transaction").unlink()
    here.stage(hello_txt=words(here, " without a hook"))
    here.must("commit", "-m", "without a hook")
    status = here.tandem.run("gate", "status", "--json").json
    assert (status["installed"], status["state"]) == (False, "damaged")
    assert [row["commit"] for row in status["commits"]] == [here.head()]


def test_an_override_is_a_persons_and_is_remembered(tmp_path: Path) -> None:
    """In a repository of its own: what is let in for a minute would be let in for the other tests too."""
    with gated(tmp_path) as here:
        here.word = "overridden"
        here.stage(hello_txt=words(here))
        assert here.tandem.run("gate", "override", "--reason", "x", "--as", "codex-1").code == 4
        here.tandem("gate", "override", "--reason", "the site is down", "--minutes", "1")
        here.must("commit", "-m", "hot fix")
        event = here.events("gate_overridden")[-1]
        assert (event["actor"], event["metadata"]["reason"]) == ("human:ada", "the site is down")
        landed = here.landed(here.head())
        assert landed["metadata"]["because"] == "override"
        status = here.tandem.run("gate", "status", "--json")
        assert [row["commit"] for row in status.json["overridden"]] == [here.head()]
        first = here.head()
        here.process.stop()
        here.stage(hello_txt=words(here, " again"))
        here.must("commit", "-m", "while no broker is running")
        until(lambda: bool(list((here.folder / ".git" / "tandem").glob("landed.*"))))
        status = here.tandem("gate", "status")
        assert [row["commit"] for row in status["overridden"]] == [first, here.head()]
        assert status["commits"] == []


def test_a_repository_with_reftable_storage_has_the_same_gate(tmp_path: Path) -> None:
    version = plain_git(tmp_path, "version").decode().split()[2].split(".")
    if (int(version[0]), int(version[1])) < (2, 46):
        pytest.skip("this git cannot store references in reftables")
    migrate = ("refs", "migrate", "--ref-format=reftable")
    with gated(tmp_path, prepare=lambda repository: plain_git(repository, *migrate)) as there:
        assert (there.folder / ".git" / "reftable").is_dir()
        there.stage(hello_txt="x\n")
        refused(there.git("commit", "-m", "x"), "hello.txt")
        there.approve()
        there.must("commit", "-m", "x")
        assert reasons(there) == ["review"]
