"""The digest says exactly what changes, whatever the repository says about its own objects."""

import hashlib
from pathlib import Path

import pytest

from gsd_review_broker.domain.gate.records import parse_records
from gsd_review_broker.errors import BrokerError
from gsd_review_broker.git.objects import commit_records, digest_of_records, empty_tree, range_records
from tests.support.local import LocalBroker
from tests.support.processes import git
from tests.support.texts import GOOD


def commit(root: Path, **files: str) -> str:
    for name, content in files.items():
        (root / name).write_text(content)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "change")
    return git(root, "rev-parse", "HEAD").decode().strip()


_ONE = b":100644 100644 " + b"1" * 40 + b" " + b"2" * 40 + b" M\0z\0"
# A path twice, and no path.
_UNFIT = (_ONE * 2, _ONE.replace(b"z", b""))


def test_a_digest_is_the_sum_over_the_sorted_records() -> None:
    one = b":100644 100644 " + b"1" * 40 + b" " + b"2" * 40 + b" M"
    raw = one + b"\0z\0" + one + b"\0a b\0"
    expected = hashlib.sha256(one + b"\0a b\0" + one + b"\0z\0").hexdigest()
    assert digest_of_records(parse_records(raw)) == f"sha256:{expected}"
    assert list(parse_records(raw)) == [b"z", b"a b"]


def test_nothing_has_no_digest() -> None:
    assert digest_of_records({}) is None


@pytest.mark.parametrize("raw", [b"x", b":100644 \0path\0", b"path\0", b"a\0b\0c\0", b"fatal: no\n", *_UNFIT])
def test_output_that_is_not_made_of_records_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="raw record"):
        parse_records(raw)


def test_a_commit_and_a_range_of_the_same_change_have_one_digest(repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD").decode().strip()
    second = commit(repository, **{"hello.txt": "other\n"})
    git(repository, "reset", "-q", "--soft", first)
    digests = {
        digest_of_records(records)
        for records in (
            commit_records(repository, second),
            range_records(repository, first, second),
        )
    }
    assert len(digests) == 1
    assert None not in digests


def test_a_first_commit_creates_everything_that_it_holds(repository: Path) -> None:
    records = commit_records(repository, "HEAD")
    assert [(path, step.old.is_absent) for path, step in records.items()] == [(b"hello.txt", True)]
    assert range_records(repository, empty_tree(repository), "HEAD") == records


def test_a_merge_is_compared_with_its_first_parent(repository: Path) -> None:
    git(repository, "checkout", "-q", "-b", "side")
    commit(repository, **{"side.txt": "side\n"})
    git(repository, "checkout", "-q", "main")
    commit(repository, **{"main.txt": "main\n"})
    git(repository, "merge", "-q", "--no-ff", "-m", "merge", "side")
    assert list(commit_records(repository, "HEAD")) == [b"side.txt"]


def test_an_unknown_commit_is_an_error_and_not_nothing(repository: Path) -> None:
    with pytest.raises(BrokerError):
        commit_records(repository, "0" * 40)
    with pytest.raises(BrokerError):
        range_records(repository, "HEAD", "--output=elsewhere")
    assert not (repository / "elsewhere").exists()


def test_a_replaced_object_is_read_as_it_was_committed(repository: Path) -> None:
    """H1: the id that the digest names stands for its own content, not for what a replace ref puts in its place."""
    second = commit(repository, **{"hello.txt": "seen\n"})
    before = commit_records(repository, second)
    third = commit(repository, **{"hello.txt": "unseen\n"})
    for name in ("^{commit}", "^{tree}", ":hello.txt"):
        ids = [
            git(repository, "--no-replace-objects", "rev-parse", end + name).decode().strip() for end in (second, third)
        ]
        git(repository, "--no-replace-objects", "replace", *ids)
    assert commit_records(repository, second) == before


@pytest.mark.parametrize("name", ["info/grafts", "shallow"])
def test_grafts_and_shallow_boundaries_do_not_choose_the_parent(repository: Path, name: str) -> None:
    first = git(repository, "rev-parse", "HEAD").decode().strip()
    second = commit(repository, **{"second.txt": "second\n"})
    third = commit(repository, **{"third.txt": "third\n"})
    before = commit_records(repository, third)
    (repository / ".git" / name).write_text(f"{third} {first}\n" if "grafts" in name else f"{third}\n{second}\n")
    assert commit_records(repository, third) == before


@pytest.mark.parametrize("file", [".gitmodules", ".git/config"])
def test_a_submodule_counts_whatever_says_that_it_is_ignored(repository: Path, file: str) -> None:
    """H4: with `ignore = all`, git leaves a submodule's commit out unless it is told otherwise."""
    first, second = (
        git(repository, "hash-object", "-w", "--stdin", stdin=name).decode().strip() for name in (b"1", b"2")
    )
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{first},module")
    git(repository, "commit", "-q", "-m", "a submodule")
    git(repository, "update-index", "--cacheinfo", f"160000,{second},module")
    with (repository / file).open("a") as settings:
        settings.write(
            '[submodule "m"]\n\tpath = module\n\turl = ./m\n\tignore = all\n[diff]\n\tignoreSubmodules = all\n'
        )
    tree = git(repository, "write-tree").decode().strip()
    assert list(range_records(repository, "HEAD", tree)) == [b"module"]


async def test_a_claim_names_the_digest_of_the_commit_that_lands(broker: LocalBroker, repository: Path) -> None:
    review_id = (await broker.create(diff=GOOD))["review_id"]
    claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
    git(repository, "apply", "--index", "-", stdin=GOOD.encode())
    git(repository, "commit", "-q", "-m", "approved")
    assert claim["digest"] == digest_of_records(commit_records(repository, "HEAD"))
