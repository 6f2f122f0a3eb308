"""Which paths a diff may name."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsd_review_broker.patch import FilePatch, UnreadableDiffError, read, unsafe_paths
from gsd_review_broker.patch.safety import is_unsafe
from tests.support.diffs import Corpus, make_corpus
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
    "line",
    ["--- ../x", "+++ ../../x", "--- /etc/passwd", "+++ b/.git/config", "diff --git a/../x b/../x", "rename to .git/x"],
)
@pytest.mark.parametrize("sign", ["+", "-", " "])
def test_content_that_looks_like_a_hostile_header_is_only_content(sign: str, line: str) -> None:
    old, new = {"+": (1, 2), "-": (2, 1), " ": (2, 2)}[sign]
    changed = "-a\n+b\n"
    diff = f"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,{old} +1,{new} @@\n{changed}{sign}{line}\n"
    assert _files(diff.encode())
    assert _unsafe(diff) == []


def test_a_line_removed_from_sql_is_no_header() -> None:
    """`-- ../x` is a comment there; removed it reads `--- ../x`, and what follows may well begin with `++`."""
    diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- ../x\n+++ ../y\n x\n"
    assert _files(diff.encode())
    assert _unsafe(diff) == []


@pytest.mark.parametrize("path", UNSAFE_PATHS.values(), ids=UNSAFE_PATHS)
@pytest.mark.parametrize(
    "wreck",
    [
        "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,9 +1,9 @@\n x\n",
        "diff --git a/x b/x\nindex 1..2 100644\nGIT binary patch\nliteral 5\nnonsense\n",
        "@@ -1 +1 @@\n-a\n+b\n",
        'diff --git a/x b/x\n--- "a/x\n',
    ],
    ids=["too few lines", "broken binary", "no header", "open quote"],
)
def test_nothing_hides_behind_something_broken(wreck: str, path: str) -> None:
    for hidden in (
        f"\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n",
        f"\ndiff --git a/x b/x\nrename from x\nrename to {path}\n",
        f"\ndiff --git a/x b/x\ncopy from {path}\ncopy to x\n",
    ):
        assert _files((wreck + hidden).encode()) is None
        assert _unsafe(wreck + hidden)


def test_paths_of_a_broken_diff_are_found_without_their_quotes() -> None:
    assert _unsafe('@@ -1 +1 @@\n-a\n+b\ndiff --git "a/\\056git/x" "b/\\056git/x"\n') == [
        ".git/x",
        "a/.git/x",
        "b/.git/x",
    ]


def _link(path: str, verb: str = "new") -> str:
    sides = f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+..\n"
    if verb == "deleted":
        sides = f"--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-..\n"
    return f"diff --git a/{path} b/{path}\n{verb} file mode 120000\n{sides}"


def test_a_file_below_a_link_of_the_same_diff_is_unsafe() -> None:
    through = "--- /dev/null\n+++ b/door/deep/x\n@@ -0,0 +1 @@\n+x\n"
    assert _unsafe(_link("door") + through) == ["door/deep/x"]
    assert _unsafe(_link("door/deep") + through) == ["door/deep/x"]


def test_a_file_beside_a_link_or_where_one_was_is_safe() -> None:
    beside = "--- /dev/null\n+++ b/door.txt\n@@ -0,0 +1 @@\n+x\n--- a/do/or\n+++ b/do/or\n@@ -1 +1 @@\n-x\n+y\n"
    inside = "--- /dev/null\n+++ b/door/x\n@@ -0,0 +1 @@\n+x\n"
    assert _unsafe(_link("door") + beside) == []
    assert _unsafe(_link("door", "deleted") + inside) == []
    assert _unsafe(_link("door") + _link("door", "deleted") + inside) == []


def test_dev_null_and_a_dot_before_the_name_are_harmless() -> None:
    plain = "--- ./x\n+++ ./x\n@@ -1 +1 @@\n-a\n+b\n"
    created = "--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+b\n"
    assert _unsafe(plain) == _unsafe(created) == []
    assert _unsafe(plain + "@@ -1,9") == _unsafe(created + "@@ -1,9 +1,9 @@\n") == []


def test_a_very_long_path_is_shortened_in_the_answer() -> None:
    (shown,) = _unsafe("--- a/../" + "x" * 10_000 + "\n+++ b/../" + "x" * 10_000 + "\n@@ -1 +1 @@\n-a\n+b\n")
    assert len(shown) < 300


@given(st.lists(st.sampled_from(["..", ".git", "x", "", ".", "a b", ".GIT ", "git~1", "..."]), min_size=1, max_size=4))
def test_one_bad_component_spoils_a_path(parts: list[str]) -> None:
    bad = bool({"..", ".git", ".", ".GIT ", "git~1"} & set(parts)) or (parts[0] == "" and len(parts) > 1)
    assert is_unsafe("/".join(parts)) == bad


@pytest.mark.parametrize(
    "line",
    ["diff --git " + '"\\" ' * 300_000, "diff --git " + "a/ " * 400_000, '--- "' + "\\" * 10**6, "--- " + " " * 10**6],
    ids=["quotes", "slashes", "backslashes", "spaces"],
)
def test_looking_at_a_broken_diff_takes_time_in_proportion_to_its_size(line: str) -> None:
    diff = line.encode()
    begun = time.perf_counter()
    list(map(len, diff.split(b" ")))
    plainly = max(time.perf_counter() - begun, 1e-3)
    begun = time.perf_counter()
    unsafe_paths(diff, None)
    assert time.perf_counter() - begun < 1_000 * plainly
