"""Which paths a diff may name."""

import pytest

from gsd_review_broker.domain.patch.reading import FilePatch, UnreadableDiffError, read
from gsd_review_broker.domain.patch.safety import is_unsafe, unsafe_paths
from tests.support.diffs import Corpus, make_corpus
from tests.support.growth import LIMIT, times_a_loop
from tests.support.hostile_diffs import UNSAFE_PATHS, Hostile, hostile

_HOSTILE = [case for case in hostile() if case.refused_with == "diff_invalid"]
_HARMLESS = [
    "..foo",
    "foo..",
    "a..b",
    "...",
    ".../x",
    ".gitignore",
    ".gitattributes",
    ".gitmodules",
    ".github/workflows/x.yml",
    "git/x",
    "x.git/y",
    ".git-hooks/x",
    ".gits",
    "git~2/x",
    "xgit~1",
    "a\\b",
    "back\\slash\\101",
    "colon:x",
    "~/x",
    "-rf",
    "$HOME/x",
    "dev/null",
    "etc/passwd",
    " /x",
    "a b/c d",
    "C/x",
    "\u200c",
    "x\n/y",
    "hooks/pre-commit",
]


def _files(diff: bytes) -> tuple[FilePatch, ...] | None:
    try:
        return read(diff)
    except UnreadableDiffError:
        return None


def _unsafe(diff: str) -> list[str]:
    content = diff.encode("utf-8", "surrogatepass")
    return unsafe_paths(content, _files(content))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus") / "repository")


@pytest.mark.parametrize("path", UNSAFE_PATHS.values(), ids=UNSAFE_PATHS)
def test_a_path_outside_the_tree_or_inside_git_is_unsafe(path: str) -> None:
    assert is_unsafe(path)


@pytest.mark.parametrize("path", _HARMLESS)
def test_an_odd_but_harmless_path_is_safe(path: str) -> None:
    assert not is_unsafe(path)


@pytest.mark.parametrize("case", _HOSTILE, ids=lambda case: case.name)
def test_a_hostile_diff_is_found_out(case: Hostile) -> None:
    assert _unsafe(case.diff)


@pytest.mark.parametrize("path", _HARMLESS)
def test_a_harmless_path_passes_in_a_diff_readable_or_not(path: str) -> None:
    name = path.replace("\\", "\\\\").replace("\n", "\\n")
    diff = f'diff --git "a/{name}" "b/{name}"\n--- "a/{name}"\n+++ "b/{name}"\n@@ -1 +1 @@\n-a\n+b\n'
    assert _unsafe(diff) == []
    assert _files(diff.encode())
    broken = diff + "@@ -1,9 +1,9 @@\n-a\n"
    assert _unsafe(broken) == []
    assert _files(broken.encode()) is None


def test_no_odd_diff_that_git_made_is_refused(corpus: Corpus) -> None:
    refused = {odd.name: unsafe_paths(odd.diff, read(odd.diff)) for odd in corpus.odd}
    assert {name: paths for name, paths in refused.items() if paths} == {}


@pytest.mark.parametrize(
    ("start", "piece"),
    [("diff --git ", '"\\" '), ("diff --git ", "a/ "), ('--- "', "\\"), ("--- ", " ")],
    ids=["quotes", "slashes", "backslashes", "spaces"],
)
@pytest.mark.slow
def test_looking_at_a_broken_diff_takes_time_in_proportion_to_its_size(start: str, piece: str) -> None:
    assert times_a_loop(lambda diff: unsafe_paths(diff, None), (start + piece * (2**20 // len(piece))).encode()) < LIMIT
