"""Diffs through the whole broker, with real git: what is hostile touches nothing, what is odd stays as it is."""

import hashlib
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.support.diffs import Corpus, git, make_corpus, run_git
from tests.support.hostile_diffs import HELLO, Hostile, hostile
from tests.support.local import LocalBroker, local_broker
from tests.support.mcp import ToolError

pytestmark = pytest.mark.slow


def _make_target(folder: Path) -> Path:
    """A repository with ways out of it, and canaries in it, in its .git and beside it."""
    (folder / "beside.txt").write_bytes(b"canary\n")
    root = folder / "target"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "hello.txt").write_bytes(HELLO)
    (root / "way-out").symlink_to("..")
    (root / "way-in").symlink_to(".git")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    (root / "canary.txt").write_bytes(b"canary\n")
    (root / ".git" / "canary.txt").write_bytes(b"canary\n")
    return root


def _snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file's mode and content: work tree, index, refs, objects, and what lies beside."""
    found: dict[str, tuple[int, bytes]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        if path.is_symlink():
            found[str(path)] = status.st_mode, os.fsencode(path.readlink())
        else:
            found[str(path)] = status.st_mode, path.read_bytes() if path.is_file() else b""
    return found


@pytest.fixture
def ground(tmp_path: Path) -> Path:
    """Everything that must not change is in here; the broker's own files are elsewhere."""
    folder = tmp_path / "ground"
    folder.mkdir()
    return folder


@pytest.fixture
async def target(ground: Path, tmp_path: Path) -> AsyncGenerator[LocalBroker]:
    async with local_broker(tmp_path, root=_make_target(ground)) as running:
        yield running


async def _met(broker: LocalBroker, case: Hostile, *, skip: bool) -> str | None:
    """The code of the refusal; None if the claim rejects it; else what the claim said."""
    try:
        created = await broker.create(diff=case.diff, skip_diff_validation=skip)
    except ToolError as error:
        return error.code
    claim = await broker("claim_review", review_id=created["review_id"], reviewer_id="reviewer")
    if skip:
        return None if claim["status"] == "claimed" and claim["digest"] is None else str(claim)[:300]
    return None if claim.get("auto_rejected") and claim["validation_error"] else str(claim)[:300]


@pytest.mark.parametrize("skip", [False, True], ids=["validated", "not validated"])
@pytest.mark.slow
async def test_a_hostile_diff_is_refused_or_rejected_and_touches_nothing(
    target: LocalBroker, ground: Path, *, skip: bool
) -> None:
    before = _snapshot(ground)
    met = {case.name: await _met(target, case, skip=skip) for case in hostile()}
    assert met == {case.name: case.refused_with for case in hostile()}
    assert _snapshot(ground) == before


async def test_a_link_or_a_submodule_is_accepted_and_flagged(target: LocalBroker) -> None:
    for mode, content in (("120000", "../beside.txt"), ("160000", "Subproject commit " + "1" * 40)):
        diff = f"diff --git a/x b/x\nnew file mode {mode}\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+{content}\n"
        created = await target.create(diff=diff)
        assert [file["new_mode"] for file in created["affected_files"]] == [mode]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus") / "repository")


async def _whole_diff(broker: LocalBroker, review_id: str) -> str:
    page = await broker("get_proposal", review_id=review_id)
    pages = [page["diff"]]
    while page["next_cursor"] is not None:
        page = await broker("get_proposal", review_id=review_id, cursor=page["next_cursor"])
        pages.append(page["diff"])
    return "".join(pages)


def _digest(corpus: Corpus, commit: str) -> str:
    options = ("-r", "-z", "--raw", "--no-renames", "--full-index")
    fields = git(corpus.folder, "diff-tree", *options, "main", commit).split(b"\0")
    records = sorted(meta + b"\0" + path + b"\0" for meta, path in zip(fields[:-1:2], fields[1::2], strict=True))
    return "sha256:" + hashlib.sha256(b"".join(records)).hexdigest()


# They change a path twice, and are refused (tests/integration/git/test_claims.py).
_TWICE = {"everything", "same file twice"}


@pytest.mark.slow
async def test_an_odd_diff_is_kept_byte_for_byte_and_has_the_digest_of_its_commit(
    corpus: Corpus, tmp_path: Path
) -> None:
    kept: dict[str, bool] = {}
    digests: dict[str, tuple[Any, str]] = {}
    before = _snapshot(corpus.folder)
    async with local_broker(tmp_path, root=corpus.folder) as broker:
        for odd in corpus.odd:
            if not odd.is_text or b"\0" in odd.diff:
                continue
            if odd.name in _TWICE:
                continue
            created = await broker.create(diff=odd.diff.decode())
            review_id = created["review_id"]
            kept[odd.name] = (await _whole_diff(broker, review_id)).encode() == odd.diff
            claim = await broker("claim_review", review_id=review_id, reviewer_id="reviewer")
            fits = run_git(corpus.folder, "apply", "--cached", "--check", stdin=odd.diff).returncode == 0
            assert fits or claim.get("auto_rejected") or claim["digest"] is None, odd.name
            if fits and odd.commit:
                digests[odd.name] = claim.get("digest"), _digest(corpus, odd.commit)
    assert _snapshot(corpus.folder) == before
    assert len(kept) > 200
    assert all(kept.values()), [name for name, same in kept.items() if not same]
    assert len(digests) > 150
    assert {name: pair for name, pair in digests.items() if pair[0] != pair[1]} == {}


@pytest.mark.slow
async def test_a_large_diff_comes_back_whole_in_pages(target: LocalBroker) -> None:
    lines = "".join(f"+line {number} é漢🎉\n" for number in range(60_000))
    diff = f"diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1,60000 @@\n{lines}"
    created = await target.create(diff=diff)
    assert await _whole_diff(target, created["review_id"]) == diff


def _hostile_configuration(root: Path, canary: Path) -> None:
    """Every setting by which a repository names a program that git runs, as far as we know them."""
    program = root / ".git" / "evil"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> "{canary}"\ncat\n')
    program.chmod(0o755)
    hooks = root / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-index-change", "pre-applypatch", "applypatch-msg", "post-checkout", "fsmonitor-watchman"):
        (hooks / name).write_bytes(program.read_bytes())
        (hooks / name).chmod(0o755)
    attributes = "* filter=evil diff=evil merge=evil working-tree-encoding=UTF-8 ident\n"
    (root / ".gitattributes").write_text(attributes)
    (root / ".git" / "info" / "attributes").write_text(attributes)
    for key, value in {
        "filter.evil.clean": str(program),
        "filter.evil.smudge": str(program),
        "filter.evil.process": str(program),
        "filter.evil.required": "true",
        "diff.evil.textconv": str(program),
        "diff.evil.command": str(program),
        "diff.external": str(program),
        "merge.evil.driver": str(program),
        "core.fsmonitor": str(program),
        "core.hooksPath": str(hooks),
        "core.pager": str(program),
        "core.editor": str(program),
        "core.sshCommand": str(program),
        "core.askPass": str(program),
        "core.gitProxy": str(program),
        "core.alternateRefsCommand": str(program),
        "pager.apply": str(program),
        "pager.diff-index": str(program),
        "alias.apply": f"!{program}",
        "alias.read-tree": f"!{program}",
        "alias.diff-index": f"!{program}",
        "credential.helper": f"!{program}",
        "gpg.program": str(program),
        "interactive.diffFilter": str(program),
        "trace2.eventTarget": str(canary),
        "submodule.recurse": "true",
    }.items():
        git(root, "config", key, value)


_APPLIES = (
    "diff --git a/hello.txt b/hello.txt\n--- a/hello.txt\n+++ b/hello.txt\n@@ -1,3 +1,3 @@\n-{}\n+uno\n two\n three\n"
)


@pytest.mark.parametrize(
    ("old", "in_tree", "skip"),
    [("one", b"one", False), ("changed", b"changed", False), ("neither", b"changed", False), ("one", b"uno", True)],
    ids=["fits HEAD", "fits the work tree only", "fits nowhere", "is there already"],
)
async def test_a_repository_decides_nothing_about_what_runs(
    target: LocalBroker, ground: Path, tmp_path: Path, old: str, in_tree: bytes, *, skip: bool
) -> None:
    canary, root = tmp_path / "executed.txt", ground / "target"
    _hostile_configuration(root, canary)
    (root / "hello.txt").write_bytes(HELLO.replace(b"one", in_tree))
    canary.unlink(missing_ok=True)
    before = _snapshot(ground)
    created = await target.create(diff=_APPLIES.format(old), workspace=str(root), skip_diff_validation=skip)
    await target("claim_review", review_id=created["review_id"], reviewer_id="reviewer")
    assert not canary.exists(), canary.read_text()
    assert _snapshot(ground) == before


async def test_a_missing_object_is_not_fetched_by_the_repository_s_own_command(
    target: LocalBroker, ground: Path, tmp_path: Path
) -> None:
    canary, root = tmp_path / "executed.txt", ground / "target"
    blob = git(root, "rev-parse", "HEAD:hello.txt").decode().strip()
    (root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "evil",
        "remote.evil.promisor": "true",
        "remote.evil.url": f"ext::sh -c touch% {canary}",
        "protocol.ext.allow": "always",
        "protocol.allow": "always",
    }.items():
        git(root, "config", key, value)
    created = await target.create(diff=_APPLIES.format("one"))
    with pytest.raises(ToolError) as error:
        await target("claim_review", review_id=created["review_id"], reviewer_id="reviewer")
    assert (error.value.code, f"object {blob} is missing" in error.value.message) == ("unavailable", True)
    assert not canary.exists()
