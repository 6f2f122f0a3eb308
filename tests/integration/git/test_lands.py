"""Property: in any repository, what lands is what the shown diff makes of the shown base, byte for byte; or nothing."""

import asyncio
import itertools
import stat
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gsd_review_broker.cli.commands import apply
from gsd_review_broker.cli.gate_questions import commits_log
from gsd_review_broker.domain.gate.decision import Approval, decide
from gsd_review_broker.domain.gate.records import parse_records
from gsd_review_broker.domain.gate.request import parse_log
from gsd_review_broker.domain.patch.reading import applied, read
from gsd_review_broker.errors import BrokerError
from gsd_review_broker.gate.install import GateSite
from gsd_review_broker.git.repository import GitRepository
from gsd_review_broker.ports.world import Applies
from tests.support.policies import gate_policy
from tests.support.processes import git, make_repository

pytestmark = pytest.mark.slow

LINES = st.lists(st.sampled_from(["a", "b", "", "c c"]), min_size=1, max_size=15)
ALL_TRICKS = ("replace", "graft", "attributes", "eol", "filter", "base overwritten", "result overwritten", "config")
TRICKS = st.sets(st.sampled_from(ALL_TRICKS))
SETTINGS = ("core.autocrlf input", "apply.ignoreWhitespace change", "apply.whitespace fix", "core.ignoreCase true")
_numbers = itertools.count()


def name_of(root: Path, content: bytes) -> str:
    return git(root, "hash-object", "-w", "--stdin", stdin=content).decode().strip()


def overwrite(root: Path, object_id: str, content: bytes) -> None:
    path = root / ".git" / "objects" / object_id[:2] / object_id[2:]
    path.chmod(path.stat().st_mode | stat.S_IWUSR)
    path.write_bytes(zlib.compress(b"blob %d\0%b" % (len(content), content)))


def prepare(root: Path, tricks: set[str], base: bytes, result: bytes) -> None:
    """Make the repository as hostile as its owner can."""
    unseen = name_of(root, result + b"unseen\n")
    info = root / ".git" / "info"
    attributes = {"attributes": "* -diff ident\n", "eol": "* text eol=crlf\n", "filter": "* filter=evil\n"}
    (info / "attributes").write_text("".join(attributes[trick] for trick in sorted(tricks & attributes.keys())))
    if "replace" in tricks:
        for content in {base, result}:
            git(root, "replace", "-f", name_of(root, content), unseen)
    if "graft" in tricks:
        (info / "grafts").write_text(git(root, "rev-parse", "HEAD").decode())
    if "filter" in tricks:
        git(root, "config", "filter.evil.clean", "sed s/a/unseen/")
        git(root, "config", "filter.evil.smudge", "sed s/b/unseen/")
    if "config" in tricks:
        for setting in SETTINGS:
            git(root, "config", *setting.split())
    if "result overwritten" in tricks:
        overwrite(root, name_of(root, result), b"unseen\n")
    if "base overwritten" in tricks:
        overwrite(root, name_of(root, base), base + b"unseen\n")


def landed(root: Path, diff: bytes) -> bytes | None:
    """The staged content after a claim and `tandem apply --index`; None if either refuses."""
    try:
        checked = asyncio.run(GitRepository(root, allowed_roots=()).check(str(root), diff, already_applied=False))
        if not isinstance(checked, Applies) or checked.digest is None:
            return None
        approved = apply.Approved(review_id="r", digest=checked.digest, diff=diff, paths=("file.txt",))
        apply.apply_approved(root, approved, index=True, check=False)
    except BrokerError:
        return None
    return git(root, "--no-replace-objects", "cat-file", "blob", ":file.txt")


_HEALTH = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=12, suppress_health_check=_HEALTH)
@given(LINES, LINES, TRICKS, st.booleans())
def test_what_lands_is_what_the_shown_diff_makes_of_the_shown_base(
    tmp_path: Path, before: list[str], after: list[str], tricks: set[str], shifted: bool
) -> None:
    require_shown(tmp_path, before, after, tricks, shifted=shifted)


@pytest.mark.torture
@settings(settings.get_profile("searching"), suppress_health_check=_HEALTH)
@given(LINES, LINES, TRICKS, st.booleans())
def test_what_lands_is_what_is_shown_in_many_more_repositories(
    tmp_path: Path, before: list[str], after: list[str], tricks: set[str], shifted: bool
) -> None:
    require_shown(tmp_path, before, after, tricks, shifted=shifted)


def content_of(lines: list[str]) -> bytes:
    return "\n".join(lines).encode() + b"\n"


def proposed(folder: Path, base: bytes, result: bytes) -> tuple[Path, bytes]:
    """A repository with the base committed and the result in its work tree, and the diff between them."""
    root = make_repository(folder / str(next(_numbers)), {"file.txt": base.decode()})
    (root / "file.txt").write_bytes(result)
    return root, git(root, "diff", "--full-index")


def require_shown(folder: Path, before: list[str], after: list[str], tricks: set[str], *, shifted: bool) -> None:
    base, result = content_of(before), content_of(after)
    if base == result:
        return
    root, diff = proposed(folder, base, result)
    (root / "file.txt").write_bytes(base)
    git(root, "status")
    if shifted:
        diff = diff.replace(b"@@ -1,", b"@@ -2,", 1)
    [file] = read(diff)
    shown = applied(diff, file, base)
    prepare(root, tricks, base, result)
    outcome = landed(root, diff)
    assert outcome in {None, shown}
    if not tricks and not shifted:
        assert outcome == shown == result


def test_what_a_filter_would_make_of_an_approved_change_is_taken_back(tmp_path: Path) -> None:
    """The work tree holds what was approved, but a commit of it would not."""
    base, result = b"a\nb\n", b"a\nb\nc\n"
    root, diff = proposed(tmp_path, base, result)
    (root / "file.txt").write_bytes(base)
    checked = asyncio.run(GitRepository(root, allowed_roots=()).check(str(root), diff, already_applied=False))
    assert isinstance(checked, Applies)
    assert checked.digest is not None
    approved = apply.Approved(review_id="r", digest=checked.digest, diff=diff, paths=("file.txt",))
    git(root, "config", "filter.evil.clean", "sed s/c/unseen/")
    (root / ".git" / "info" / "attributes").write_text("* filter=evil\n")
    with pytest.raises(BrokerError, match="filters or attributes of this repository change what was approved") as error:
        apply.apply_approved(root, approved, index=False, check=False)
    assert "The files were restored." in str(error.value.hint)
    assert (root / "file.txt").read_bytes() == base
    git(root, "config", "filter.evil.clean", "cat")
    apply.apply_approved(root, approved, index=False, check=False)
    assert (root / "file.txt").read_bytes() == result


# What the author of an approved change may try to commit instead: content, and more beside it.
SWAPS = st.sampled_from(["as approved", "other content", "a submodule beside", "a mode bit", "another file"])
# An object that is overwritten in place keeps its name: docs/security.md says why the gate does not hash it again.
GATE_TRICKS = st.sets(st.sampled_from([trick for trick in ALL_TRICKS if "overwritten" not in trick]))


@settings(max_examples=12, suppress_health_check=_HEALTH)
@given(LINES, LINES, GATE_TRICKS, SWAPS)
def test_what_the_gate_lets_in_is_what_the_shown_diff_makes_of_the_shown_base(
    tmp_path: Path, before: list[str], after: list[str], tricks: set[str], swap: str
) -> None:
    require_gated(tmp_path, before, after, tricks, swap)


@pytest.mark.torture
@settings(settings.get_profile("searching"), suppress_health_check=_HEALTH)
@given(LINES, LINES, GATE_TRICKS, SWAPS)
def test_what_the_gate_lets_in_is_what_is_shown_in_many_more_repositories(
    tmp_path: Path, before: list[str], after: list[str], tricks: set[str], swap: str
) -> None:
    require_gated(tmp_path, before, after, tricks, swap)


def require_gated(folder: Path, before: list[str], after: list[str], tricks: set[str], swap: str) -> None:
    base, result = content_of(before), content_of(after)
    if base == result:
        return
    root, diff = proposed(folder, base, result)
    checked = asyncio.run(GitRepository(root, allowed_roots=()).check(str(root), diff, already_applied=False))
    assert isinstance(checked, Applies)
    assert checked.records is not None
    commit = swapped(root, result, swap)
    prepare(root, tricks, base, result)
    (root / ".gitmodules").write_text('[submodule "m"]\n\tpath = m\n\turl = ./m\n\tignore = all\n')
    approval = Approval(review_id="r", by_person=False, steps=parse_records(checked.records))
    commits = parse_log(commits_log(GateSite.of(root), [f"HEAD..{commit}"]))
    covered = decide(commits, [approval], gate_policy())
    assert [one.id for one in commits] == [commit]
    assert (commit in covered) == (swap == "as approved")


def swapped(root: Path, result: bytes, swap: str) -> str:
    """The commit, made before the repository is turned hostile: git stores what it is given."""
    content = result + b"unseen\n" if swap == "other content" else result
    mode = "100755" if swap == "a mode bit" else "100644"
    entries = [f"{mode} blob {name_of(root, content)}\tfile.txt"]
    if swap == "a submodule beside":
        entries.append(f"160000 commit {git(root, 'rev-parse', 'HEAD').decode().strip()}\tm")
    if swap == "another file":
        entries.append(f"100644 blob {name_of(root, b'more')}\tmore.txt")
    tree = git(root, "mktree", stdin="\n".join(entries).encode() + b"\n").decode().strip()
    return git(root, "commit-tree", "-p", "HEAD", "-m", "x", tree).decode().strip()
