"""What a reviewer is shown is what the digest names, in a repository that somebody has prepared."""

import re
import stat
import subprocess
import zlib
from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker.domain.gate.records import parse_records
from gsd_review_broker.git.objects import commit_records, digest_of_records
from gsd_review_broker.git.repository import GitRepository
from tests.support.local import LocalBroker
from tests.support.mcp import ToolError
from tests.support.processes import git, make_repository
from tests.support.texts import GOOD

NUMBERS = "".join(f"line {number}\n" for number in range(40))


async def claim(broker: LocalBroker, diff: str, **proposal: Any) -> Any:
    review_id = (await broker.create(diff=diff, **proposal))["review_id"]
    return await broker("claim_review", review_id=review_id, reviewer_id="codex")


def commit(root: Path, **files: str) -> None:
    for name, content in files.items():
        (root / name).write_text(content)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "change")


def diff_of(root: Path, name: str, content: str) -> str:
    """What `git diff` shows for this content; the work tree stays as it was."""
    before = (root / name).read_bytes()
    (root / name).write_text(content)
    diff = git(root, "diff", "--full-index").decode()
    (root / name).write_bytes(before)
    return diff


def overwrite(root: Path, object_id: str, kind: str, content: bytes) -> None:
    path = root / ".git" / "objects" / object_id[:2] / object_id[2:]
    path.chmod(path.stat().st_mode | stat.S_IWUSR)
    path.write_bytes(zlib.compress(b"%b %d\0%b" % (kind.encode(), len(content), content)))


def name_of(root: Path, spelled: str) -> str:
    return git(root, "rev-parse", spelled).decode().strip()


async def test_a_replace_ref_does_not_change_what_a_claim_names(broker: LocalBroker, repository: Path) -> None:
    """H1: `git replace` shows git another blob under the name of the one that HEAD holds."""
    git(repository, "apply", "--cached", "-", stdin=GOOD.encode())
    tree = git(repository, "write-tree").decode().strip()
    git(repository, "reset", "-q")
    expected = git(repository, "diff-tree", "-r", "-z", "--raw", "--full-index", "HEAD", tree)
    other = git(repository, "hash-object", "-w", "--stdin", stdin=b"one\ntwo\nthree\nunseen\n").decode().strip()
    git(repository, "replace", name_of(repository, "HEAD:hello.txt"), other)
    result = await claim(broker, GOOD)
    assert result["digest"] == digest_of_records(parse_records(expected))


@pytest.mark.parametrize("spelled", ["HEAD", "HEAD^{tree}", "HEAD:hello.txt"])
async def test_an_object_that_was_overwritten_in_place_is_noticed(
    broker: LocalBroker, repository: Path, spelled: str
) -> None:
    """H1: git does not hash what it reads, so the broker does: the commit, its trees and the touched blobs."""
    object_id = name_of(repository, spelled)
    kind = git(repository, "cat-file", "-t", object_id).decode().strip()
    content = git(repository, "cat-file", kind, object_id)
    changed = {"commit": content + b"x", "tree": content.replace(b"hello.txt", b"jello.txt"), "blob": content + b"4\n"}
    overwrite(repository, object_id, kind, changed[kind])
    with pytest.raises(ToolError) as error:
        await claim(broker, GOOD)
    assert (error.value.code, "damaged" in error.value.message) == ("unavailable", True)


async def test_a_result_that_the_repository_holds_with_other_content_is_noticed(
    broker: LocalBroker, repository: Path
) -> None:
    """H1: git does not write a blob whose name is there already, whatever is stored under it."""
    made = git(repository, "hash-object", "-w", "--stdin", stdin=b"one\ndeux\nthree\n").decode().strip()
    overwrite(repository, made, "blob", b"one\nunseen\nthree\n")
    with pytest.raises(ToolError) as error:
        await claim(broker, GOOD)
    assert error.value.code == "unavailable"


async def test_the_repositorys_own_settings_and_attributes_do_not_change_a_digest(
    broker: LocalBroker, repository: Path
) -> None:
    expected = (await claim(broker, GOOD))["digest"]
    (repository / ".gitattributes").write_text("* text eol=crlf filter=evil working-tree-encoding=UTF-16\n")
    (repository / ".git" / "info" / "attributes").write_text("* filter=evil ident -diff\n")
    (repository / ".git" / "info" / "grafts").write_text("")
    for setting in (
        "core.autocrlf true", "core.eol crlf", "core.ignoreCase true", "core.fileMode false", "core.symlinks false",
        "core.bigFileThreshold 1", "core.sparseCheckout true", "core.splitIndex true", "index.version 4",
        "core.precomposeUnicode true", "diff.renames copies", "diff.noprefix true", "diff.ignoreSubmodules all",
        "diff.relative true", "diff.orderFile .git/HEAD", "apply.whitespace fix", "apply.ignoreWhitespace change",
        "core.whitespace blank-at-eol", "filter.evil.clean false", "filter.evil.smudge false",
        "filter.evil.required true", "core.fsmonitor false", "core.attributesFile .git/info/attributes",
        "core.commitGraph true", "i18n.commitEncoding UTF-16",
    ):  # fmt: skip
        git(repository, "config", *setting.split(" ", 1))
    assert (await claim(broker, GOOD))["digest"] == expected


async def test_a_hunk_away_from_its_own_line_is_sent_back(broker: LocalBroker, repository: Path) -> None:
    """H2: a hunk that shows one function's place and lands in another."""
    commit(repository, **{"code.txt": ("def safe():\n    check()\n    go()\n" + "#\n" * 20) * 2})
    hunk = "@@ -1,3 +1,2 @@ def unsafe():\n"
    diff = f"--- a/code.txt\n+++ b/code.txt\n{hunk} def safe():\n-    check()\n     go()\n"
    assert "auto_rejected" not in await claim(broker, diff)
    elsewhere = diff.replace(hunk, "@@ -24,3 +24,2 @@ def safe():\n")
    assert "auto_rejected" not in await claim(broker, elsewhere)
    between = await claim(broker, diff.replace(hunk, "@@ -20,3 +20,2 @@ def safe():\n"))
    assert between["auto_rejected"] is True
    assert "regenerate the diff against HEAD" in between["validation_error"]
    contradicting = await claim(broker, diff.replace(hunk, "@@ -1,3 +24,2 @@ def safe():\n"))
    assert contradicting["auto_rejected"] is True


async def test_an_honest_diff_against_an_older_base_tells_its_offset(broker: LocalBroker, repository: Path) -> None:
    commit(repository, **{"code.txt": NUMBERS})
    diff = diff_of(repository, "code.txt", NUMBERS.replace("line 20", "twenty"))
    commit(repository, **{"code.txt": "new\nnew\n" + NUMBERS})
    result = await claim(broker, diff)
    offsets = [{"path": "code.txt", "hunk": 1, "offset": 2}]
    assert result["offsets"] == offsets
    again = await broker("claim_review", review_id=result["review_id"], reviewer_id="codex")
    assert again["offsets"] == offsets
    proposal = await broker("get_proposal", review_id=result["review_id"])
    assert proposal["offsets"] == offsets
    page = await broker.page(f"/r/{result['review_id']}")
    assert "made from an older base, so hunks are moved: hunk 1 of code.txt by +2 lines" in page
    (repository / "code.txt").write_text("new\nnew\n" + NUMBERS.replace("line 20", "twenty"))
    git(repository, "commit", "-q", "-a", "-m", "approved")
    assert result["digest"] == digest_of_records(commit_records(repository, "HEAD"))
    for unknown in (re.sub("index .*\n", "", diff), re.sub("index [0-9a-f]{40}", f"index {'1' * 40}", diff)):
        git(repository, "reset", "-q", "--hard", "HEAD~1")
        commit(repository, **{"other.txt": unknown[:60]})
        assert (await claim(broker, unknown))["auto_rejected"] is True


async def test_a_counter_patch_away_from_its_own_line_is_refused(broker: LocalBroker, repository: Path) -> None:
    commit(repository, **{"code.txt": NUMBERS})
    diff = diff_of(repository, "code.txt", NUMBERS.replace("line 20", "twenty"))
    result = await claim(broker, diff)
    moved = re.sub("index .*\n", "", diff).replace("@@ -18,7 +18,7 @@", "@@ -8,7 +8,7 @@")
    verdict = {"verdict": "changes_requested", "reason": "so", "claim_generation": result["claim_generation"]}
    with pytest.raises(ToolError) as error:
        await broker("submit_verdict", review_id=result["review_id"], **verdict, counter_patch=moved)
    assert (error.value.code, "regenerate" in error.value.message) == ("diff_invalid", True)


@pytest.mark.parametrize("mode", ["100600", "100664", "040000", "100777", "000000", "170000"])
async def test_a_file_mode_that_git_does_not_store_is_refused(broker: LocalBroker, mode: str) -> None:
    """L1."""
    diff = f"diff --git a/x b/x\nnew file mode {mode}\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+x\n"
    with pytest.raises(ToolError) as error:
        await broker.create(diff=diff)
    assert error.value.code == "diff_invalid"


async def test_a_mode_other_than_the_one_shown_is_sent_back(broker: LocalBroker, repository: Path) -> None:
    """git only warns when the old mode is not the one that the diff names."""
    (repository / "hello.txt").chmod(0o755)
    commit(repository)
    result = await claim(broker, "diff --git a/hello.txt b/hello.txt\nold mode 100644\nnew mode 100755\n" + GOOD)
    assert result["auto_rejected"] is True


@pytest.mark.parametrize(
    "second",
    [
        "--- a/hello.txt\n+++ b/hello.txt\n@@ -1,3 +1,3 @@\n one\n-deux\n+trois\n three\n",
        "diff --git a/hello.txt b/other.txt\nsimilarity index 100%\nrename from hello.txt\nrename to other.txt\n",
        "diff --git a/other.txt b/hello.txt\nsimilarity index 100%\nrename from other.txt\nrename to hello.txt\n",
        "diff --git a/hello.txt b/hello.txt\nold mode 100644\nnew mode 100755\n",
    ],
)
async def test_a_path_that_a_diff_changes_twice_is_refused(broker: LocalBroker, second: str) -> None:
    """H3: of two sections about one path, an interdiff showed the last alone."""
    with pytest.raises(ToolError) as error:
        await broker.create(diff=GOOD + second)
    assert error.value.code == "diff_invalid"


async def test_a_file_that_becomes_a_link_is_two_sections_and_is_taken(broker: LocalBroker, repository: Path) -> None:
    (repository / "hello.txt").unlink()
    (repository / "hello.txt").symlink_to("elsewhere")
    diff = git(repository, "diff").decode()
    git(repository, "commit", "-q", "-a", "-m", "a link")
    expected = digest_of_records(commit_records(repository, "HEAD"))
    git(repository, "reset", "-q", "--hard", "HEAD~1")
    assert diff.count("diff --git") == 2
    assert (await claim(broker, diff))["digest"] == expected


@pytest.mark.parametrize("skip", [False, True])
async def test_a_diff_that_cannot_be_read_completely_has_no_digest(
    broker: LocalBroker, repository: Path, *, skip: bool
) -> None:
    """L2: git takes a name that goes on after the end of its line; the broker does not read such a diff."""
    unreadable = GOOD + '--- a/"x\n+++ "b/x\n@@ -0,0 +1 @@\n+x\n'
    if skip:
        git(repository, "apply", "--index", "-", stdin=GOOD.encode())
        git(repository, "commit", "-q", "-m", "in the tree")
    result = await claim(broker, unreadable, skip_diff_validation=skip)
    assert result.get("digest") is None
    assert ("auto_rejected" in result) is not skip


async def test_a_folder_that_only_names_our_git_folder_is_not_a_worktree(
    broker: LocalBroker, repository: Path, tmp_path: Path
) -> None:
    """L9: the worktrees of the root are those that git lists, wherever another folder is."""
    for pretender in (tmp_path / "pretender", repository / "pretender"):
        pretender.mkdir()
        (pretender / ".git").write_text(f"gitdir: {repository / '.git'}\n")
        with pytest.raises(ToolError) as error:
            await broker.create(diff=GOOD, workspace=str(pretender))
        assert error.value.code == "forbidden"
    git(repository, "worktree", "add", "-q", str(tmp_path / "linked"))
    assert "digest" in await claim(broker, GOOD, workspace=str(tmp_path / "linked"))


async def test_a_claim_starts_three_git_processes(
    broker: LocalBroker, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where HEAD is, the objects, and apply; four before. The size of the repository does not matter."""
    # Which repository it is, is asked once.
    first = (await broker.create(diff=GOOD))["review_id"]
    await broker("claim_review", review_id=first, reviewer_id="codex")
    review_id = (await broker.create(diff=GOOD))["review_id"]
    started: list[str] = []
    popen = subprocess.Popen

    class Counted(popen):  # type: ignore[type-arg, misc, valid-type]
        def __init__(self, arguments: list[str], **options: Any) -> None:
            started.append(next(word for word in arguments[1:] if not word.startswith("-") and "=" not in word))
            super().__init__(arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", Counted)
    assert (await broker("claim_review", review_id=review_id, reviewer_id="codex"))["digest"]
    assert started == ["rev-parse", "cat-file", "apply"]
    assert repository.is_dir()


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
async def test_a_claim_has_gits_own_digest_in_either_object_format(tmp_path: Path, object_format: str) -> None:
    root = tmp_path / object_format
    root.mkdir()
    git(root, "init", "-q", "-b", "main", f"--object-format={object_format}")
    make_repository(root)
    answer = await GitRepository(root, allowed_roots=()).check(str(root), GOOD.encode(), already_applied=False)
    git(root, "apply", "--index", "-", stdin=GOOD.encode())
    git(root, "commit", "-q", "-m", "approved")
    digest = digest_of_records(commit_records(root, "HEAD"))
    reverse = await GitRepository(root, allowed_roots=()).check(str(root), GOOD.encode(), already_applied=True)
    assert (getattr(answer, "digest", None), getattr(reverse, "digest", None)) == (digest, digest)
