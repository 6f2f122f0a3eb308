"""`tandem apply`: what was approved, exactly, or nothing at all."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcp import Mcp
from tests.support.processes import BrokerProcess, git
from tests.support.tandem import Tandem, broker_of_module, put_back

FILES = {"hello.txt": "one\ntwo\nthree\n", "bin/run.sh": "#!/bin/sh\n"}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Generator[BrokerProcess]:
    yield from broker_of_module(tmp_path_factory, FILES)


@pytest.fixture
def repository(process: BrokerProcess) -> Path:
    return put_back(process)


@pytest.fixture
def mcp(process: BrokerProcess) -> Mcp:
    return process.client()


@pytest.fixture
def tandem(process: BrokerProcess) -> Tandem:
    return Tandem(process.folder, process.home)


def proposed(tandem: Tandem, repository: Path) -> str:
    """A change of every kind, proposed, and then put away."""
    (repository / "hello.txt").write_text("one\ndeux  \nthree\n")
    (repository / "new.bin").write_bytes(bytes(range(256)))
    (repository / "bin" / "run.sh").chmod(0o755)
    review_id = tandem("propose", "-m", "Change", "--worktree")["review_id"]
    git(repository, "stash", "-qu")
    return review_id


def status(repository: Path) -> set[str]:
    return set(git(repository, "status", "--porcelain").decode().splitlines())


def test_what_was_approved_is_applied_checked_and_then_left_alone(tandem: Tandem, repository: Path) -> None:
    review_id = proposed(tandem, repository)
    digest = tandem("approve", review_id, "--as", "codex")["digest"]
    checked = tandem("apply", review_id, "--check")
    assert (checked["digest"], checked["place"], status(repository)) == (digest, None, set())
    said = tandem.run("apply", review_id[:8])
    assert (said.code, said.out) == (0, f"{review_id} is in the work tree now ({digest})\n")
    assert status(repository) == {" M hello.txt", " M bin/run.sh", "?? new.bin"}
    assert (repository / "hello.txt").read_text() == "one\ndeux  \nthree\n"
    assert (repository / "new.bin").read_bytes() == bytes(range(256))
    for expected, then in (
        ("work tree", ("add", "-A")),
        ("index", ("commit", "-qm", "landed")),
        ("last commit", ("status",)),
    ):
        again = tandem("apply", review_id)
        assert (again["place"], again["was_there"], again["digest"]) == (expected, True, digest)
        git(repository, *then)
    tandem("close", review_id)
    assert tandem("apply", review_id)["place"] == "last commit"


def test_with_index_it_is_staged_too_even_if_it_was_in_the_work_tree(tandem: Tandem, repository: Path) -> None:
    review_id = proposed(tandem, repository)
    tandem("approve", review_id, "--as", "codex")
    tandem("apply", review_id)
    for was_there in (False, True):
        applied = tandem("apply", review_id, "--index")
        assert (applied["place"], applied["was_there"]) == ("index", was_there)
        assert status(repository) == {"M  hello.txt", "M  bin/run.sh", "A  new.bin"}
    git(repository, "reset", "-q", "--hard")
    assert tandem("apply", review_id, "--index")["was_there"] is False
    assert status(repository) == {"M  hello.txt", "M  bin/run.sh", "A  new.bin"}


@pytest.mark.parametrize(
    ("state", "next_step"),
    [
        ("pending", "tandem wait"),
        ("claimed", "tandem wait"),
        ("changes_requested", "tandem propose --review"),
        ("withdrawn", "propose the change again with `tandem propose`"),
    ],
)
def test_what_was_not_approved_is_refused_with_5(
    tandem: Tandem, repository: Path, mcp: Mcp, state: str, next_step: str
) -> None:
    review_id = proposed(tandem, repository)
    match state:
        case "claimed":
            tandem("claim", review_id, "--as", "codex")
        case "changes_requested":
            tandem("request-changes", review_id, "-m", "No.", "--as", "codex")
        case "withdrawn":
            tandem("close", review_id)
        case _:
            pass
    said = tandem.run("apply", review_id)
    assert said.code == 5
    assert "not approved" in said.err
    assert next_step in said.err
    assert status(repository) == set()
    assert tandem.run("apply", review_id, "--json").error["code"] == "invalid_transition"


def approved_elsewhere(tandem: Tandem, repository: Path) -> tuple[str, dict[str, Any]]:
    review_id = proposed(tandem, repository)
    return review_id, tandem("approve", review_id, "--as", "codex")


def test_on_another_base_it_is_not_what_was_approved_and_exits_6(tandem: Tandem, repository: Path) -> None:
    review_id, given = approved_elsewhere(tandem, repository)
    (repository / "hello.txt").write_text("zero\none\ntwo\nthree\n")
    git(repository, "commit", "-qam", "in between")
    said = tandem.run("apply", review_id, "--json")
    assert (said.code, said.error["code"]) == (6, "conflict")
    assert given["digest"] in said.error["message"]
    assert "propose it again" in said.error["hint"]
    assert status(repository) == set()


def test_after_a_commit_that_does_not_touch_its_files_it_still_is(tandem: Tandem, repository: Path) -> None:
    review_id, given = approved_elsewhere(tandem, repository)
    (repository / "other.txt").write_text("other\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "elsewhere")
    assert tandem("apply", review_id)["digest"] == given["digest"]


def test_over_changes_of_ones_own_it_is_refused_and_nothing_is_lost(tandem: Tandem, repository: Path) -> None:
    review_id, _ = approved_elsewhere(tandem, repository)
    (repository / "hello.txt").write_text("one\ntwo\nthree\nmine\n")
    said = tandem.run("apply", review_id)
    assert said.code == 6
    assert "hello.txt: changed here" in said.err
    assert status(repository) == {" M hello.txt"}
    git(repository, "checkout", "hello.txt")
    (repository / "new.bin").write_text("mine")
    assert tandem.run("apply", review_id).code == 6
    assert (repository / "new.bin").read_text() == "mine"


def test_an_approval_without_a_digest_proves_nothing_and_is_not_applied(
    tandem: Tandem, repository: Path, mcp: Mcp
) -> None:
    (repository / "hello.txt").write_text("one\ntwo\nthree\nmine\n")
    diff = b"--- a/hello.txt\n+++ b/hello.txt\n@@ -4,1 +4,1 @@\n-mine\n+yours\n"
    review_id = tandem("propose", "-m", "On mine", "-F", "-", stdin=diff)["review_id"]
    assert tandem("approve", review_id, "--as", "codex")["digest"] is None
    said = tandem.run("apply", review_id)
    assert said.code == 6
    assert "without a digest" in said.err


def test_words_alone_cannot_be_applied(tandem: Tandem) -> None:
    review_id = tandem("propose", "-m", "Words", "--no-diff")["review_id"]
    tandem("approve", review_id, "--as", "codex")
    assert tandem.run("apply", review_id).code == 7


def test_white_space_and_odd_names_arrive_as_they_were_approved(tandem: Tandem, repository: Path) -> None:
    git(repository, "config", "apply.whitespace", "fix")
    (repository / "tr\tailing *?[x].txt").write_bytes(b"spaces   \r\n\tand\ttabs \n\n\n")
    review_id = tandem("propose", "-m", "Odd", "--worktree")["review_id"]
    git(repository, "stash", "-qu")
    tandem("approve", review_id, "--as", "codex")
    tandem("apply", review_id)
    assert (repository / "tr\tailing *?[x].txt").read_bytes() == b"spaces   \r\n\tand\ttabs \n\n\n"
