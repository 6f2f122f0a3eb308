"""Receipts: an approval that proves itself to a CI job or a server, without a broker."""

import json
import stat
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.gated import Gated, gated
from tests.support.processes import git as plain_git
from tests.support.processes import make_repository
from tests.support.tandem import PROGRAM, Said, Tandem

NOTES = "refs/notes/tandem"


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Generator[Gated]:
    """One approved commit with its receipt in a note, and the public key in a file."""
    folder = tmp_path_factory.mktemp("receipts")
    with gated(folder) as here:
        here.stage(hello_txt="approved\n")
        here.word = here.approve()
        here.must("commit", "-m", "approved")
        receipt = here.tandem.run("gate", "receipt", here.word, "--note", "HEAD", **git_names())
        assert receipt.code == 0, receipt
        (folder / "key").write_text(here.tandem.run("gate", "key").out)
        yield here


def git_names() -> dict[str, str]:
    return {
        "GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.invalid",
        "GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.invalid",
    }  # fmt: skip


def clone(landed: Gated, target: Path, *options: str) -> Path:
    plain_git(target.parent, "clone", "-q", *options, f"file://{landed.folder}", target.name)
    plain_git(target, "fetch", "-q", "origin", f"{NOTES}:{NOTES}")
    return target


def offline(landed: Gated, folder: Path, *arguments: str, key: Path | None = None) -> Said:
    file = key or landed.folder.parent / "key"
    revisions = [word for word in arguments if not word.startswith("--")] or ["HEAD~1..HEAD"]
    flags = [word for word in arguments if word.startswith("--")]
    return Tandem(folder, landed.home).run("gate", "check", *revisions, "--offline", "--key", str(file), *flags)


def replace_note(folder: Path, text: str) -> None:
    plain_git(folder, "notes", f"--ref={NOTES}", "add", "-f", "-m", text, "HEAD")


def test_a_receipt_has_the_fields_of_the_contract_and_the_key_is_private(landed: Gated) -> None:
    receipt = landed.tandem("gate", "receipt", landed.word)
    key = landed.tandem("gate", "key")
    assert set(receipt) == {
        "repository", "digest", "review_id", "revision", "proposer", "reviewer", "verdict", "approved_at", "key_id",
        "signature",
    }  # fmt: skip
    assert receipt["repository"] == landed.must("rev-list", "--max-parents=0", "HEAD")
    assert receipt["key_id"] == key["key_id"]
    assert (receipt["verdict"], receipt["reviewer"]) == ("approved", "codex-1")
    [secret] = landed.home.rglob("receipt-key.pem")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_a_clone_and_a_bare_repository_are_checked_from_receipts_alone(landed: Gated, tmp_path: Path) -> None:
    assert offline(landed, clone(landed, tmp_path / "clone")).code == 0
    assert offline(landed, clone(landed, tmp_path / "bare", "--bare")).code == 0


@pytest.mark.parametrize("revisions", ["origin/no-such-branch..HEAD", "HEAD~99..HEAD", "nonsense"])
def test_a_range_that_git_does_not_know_is_wrong_usage_and_not_an_empty_range(landed: Gated, revisions: str) -> None:
    for said in (offline(landed, landed.folder, revisions), landed.tandem.run("gate", "check", revisions)):
        assert said.code == 2, said
        assert "bad revision" in said.err, said
        assert "Give a range that git knows" in said.err, said


def test_the_number_of_commits_is_told(landed: Gated) -> None:
    assert landed.tandem.run("gate", "check", "HEAD..HEAD").out == "There is no commit in this range.\n"
    assert landed.tandem.run("gate", "check", "HEAD~1..HEAD").out == "The commit has approval.\n"
    assert offline(landed, landed.folder).out == "The commit has a receipt.\n"


def test_content_without_a_receipt_is_refused(landed: Gated, tmp_path: Path) -> None:
    folder = clone(landed, tmp_path / "clone")
    (folder / "hello.txt").write_text("not approved\n")
    plain_git(folder, "commit", "-q", "-am", "around")
    said = offline(landed, folder, "HEAD~2..HEAD")
    assert said.code == 5
    lines = said.out.splitlines()
    assert lines[0] == "tandem gate: refused: 1 commit without an approved review."
    assert lines[2] == "    without approval: hello.txt"
    assert lines[-1].startswith("Next: tandem propose --range ")


def test_a_commit_that_an_override_let_through_is_told_apart_and_refused_where_nobody_may(
    landed: Gated, tmp_path: Path
) -> None:
    folder = tmp_path / "policy"
    landed.must("checkout", "-q", "-b", "hot", "main")
    try:
        landed.stage(hello_txt="hot fix\n")
        landed.tandem("gate", "override", "--reason", "the site is down", "--minutes", "1")
        landed.must("commit", "-m", "hot fix")
        landed.landed(landed.head())
        receipt = landed.tandem.run("gate", "receipt", "--override", "hot", "--note", "hot", **git_names())
        assert receipt.code == 0, receipt
        said = offline(landed, landed.folder, "hot~2..hot")
        assert (said.code, "overridden by human:ada" in said.out, "the site is down" in said.out) == (0, True, True)
        # It is about that commit: the same content in another one is not covered.
        other = landed.must("commit-tree", "-p", "hot~1", "-m", "again", "hot^{tree}")
        assert offline(landed, landed.folder, f"hot~1..{other}").code == 5
        folder.write_text('{"override": "nobody"}')
        assert offline(landed, landed.folder, "hot~2..hot", f"--policy={folder}").code == 5
        assert landed.tandem.run("gate", "receipt", "--override", "main").code == 7
        assert landed.tandem.run("gate", "receipt", "--override", "none").code == 7
        assert landed.tandem.run("gate", "receipt").code == 2
    finally:
        landed.must("checkout", "-q", "main")
        landed.must("branch", "-q", "-D", "hot")


def test_no_receipt_at_all_is_a_refusal(landed: Gated, tmp_path: Path) -> None:
    folder = clone(landed, tmp_path / "clone")
    plain_git(folder, "update-ref", "-d", NOTES)
    assert offline(landed, folder).code == 5


def test_a_tampered_receipt_proves_nothing(landed: Gated, tmp_path: Path) -> None:
    folder = clone(landed, tmp_path / "clone")
    receipt = landed.tandem("gate", "receipt", landed.word)
    replace_note(folder, json.dumps({**receipt, "reviewer": "human:ada"}))
    said = offline(landed, folder)
    assert (said.code, "was altered" in said.out) == (5, True)


def test_a_receipt_signed_by_another_key_proves_nothing(landed: Gated, tmp_path: Path) -> None:
    key = tmp_path / "other"
    key.write_text("ab" * 32)
    said = offline(landed, clone(landed, tmp_path / "clone"), key=key)
    assert (said.code, "another key" in said.out) == (5, True)


def test_a_receipt_of_another_repository_proves_nothing(landed: Gated, tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other", {"hello.txt": "one\ntwo\nthree\n", "more.txt": "more\n"})
    (other / "hello.txt").write_text("approved\n")
    plain_git(other, "commit", "-q", "-am", "the same change")
    replace_note(other, json.dumps(landed.tandem("gate", "receipt", landed.word)))
    said = offline(landed, other)
    assert (said.code, "another repository" in said.out) == (5, True)


def test_a_shallow_clone_is_told_to_fetch_the_whole_history(landed: Gated, tmp_path: Path) -> None:
    said = offline(landed, clone(landed, tmp_path / "clone", "--depth=2"))
    assert (said.code, "fetch the whole history" in said.out) == (5, True)


def test_a_key_that_cannot_be_read_is_wrong_usage(landed: Gated, tmp_path: Path) -> None:
    assert offline(landed, landed.folder, key=tmp_path / "none").code == 2
    assert Tandem(landed.folder, landed.home).run("gate", "check", "HEAD", "--offline").code == 2


def test_the_hook_believes_a_receipt_in_the_notes_while_neither_broker_nor_database_answers(tmp_path: Path) -> None:
    with gated(tmp_path) as here:
        here.stage(hello_txt="approved\n")
        review = here.approve()
        assert here.tandem.run("gate", "receipt", review, "--note", "HEAD", **git_names()).code == 0
        here.process.stop()
        for file in (here.folder / ".planning").glob("codex_review_broker.sqlite3*"):
            file.unlink()
        # Without the ticket, the hook has to ask.
        for ticket in (here.folder / ".git" / "tandem" / "tickets").iterdir():
            ticket.unlink()
        here.stage(hello_txt="approved, and more\n")
        assert here.git("commit", "-m", "more").code != 0
        here.stage(hello_txt="approved\n")
        here.must("commit", "-m", "approved")


def guarded_server(landed: Gated, folder: Path) -> Path:
    """A bare repository with the pre-receive hook of docs/gate.md, before anything was approved."""
    server = clone(landed, folder / "server", "--bare")
    plain_git(server, "update-ref", "refs/heads/main", "main~1")
    page = (Path(__file__).parents[3] / "docs" / "gate.md").read_text()
    text = page.partition("A server's `pre-receive` hook")[2].partition("```sh\n")[2].partition("```")[0]
    key = landed.folder.parent / "key"
    hook = server / "hooks" / "pre-receive"
    hook.write_text(text.replace("tandem gate check", f"{PROGRAM} gate check").replace("/etc/tandem.pub", f"'{key}'"))
    hook.chmod(0o755)
    return server


def push(work: Path, *refs: str) -> bool:
    done = subprocess.run(["git", "push", "-q", "origin", *refs], cwd=work, capture_output=True, check=False)
    assert done.returncode == 0 or b"tandem gate: refused" in done.stderr, done.stderr
    return done.returncode == 0


def test_a_pre_receive_hook_judges_every_commit_of_a_push(landed: Gated, tmp_path: Path) -> None:
    server = guarded_server(landed, tmp_path)
    work = clone(landed, tmp_path / "work")
    plain_git(work, "remote", "set-url", "origin", str(server))
    (work / "hello.txt").write_text("not approved\n")
    plain_git(work, "commit", "-q", "-am", "around")
    assert not push(work, "main")
    assert not push(work, "main:another")
    assert plain_git(server, "rev-parse", "main") == plain_git(work, "rev-parse", "HEAD~2")
    plain_git(work, "reset", "-q", "--hard", "HEAD~1")
    # Two commits: the approved one, and one that changes exempt paths only.
    (work / ".planning").mkdir()
    (work / ".planning" / "STATE.md").write_text("state\n")
    plain_git(work, "add", "-f", ".planning/STATE.md")
    plain_git(work, "commit", "-q", "-m", "state")
    assert push(work, "main")
    assert plain_git(server, "rev-parse", "main") == plain_git(work, "rev-parse", "HEAD")
