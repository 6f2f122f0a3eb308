"""What we read in a diff is what git reads in it."""

import contextlib
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gsd_review_broker.domain.model import AffectedFile
from gsd_review_broker.domain.patch.headers import readable_name
from gsd_review_broker.domain.patch.reading import UnreadableDiffError, affected_files, read
from gsd_review_broker.domain.words import Operation
from tests.support.diffs import FILE, LINK, PROGRAM, Corpus, Tree, diff_of_trees, git, make_corpus, run_git
from tests.support.growth import LIMIT, times_a_loop
from tests.support.hostile_diffs import binary_block, hostile

_SUMMARY = re.compile(
    r" (?:(?P<verb>create|delete)(?: mode (?P<mode>[0-7]+))? "
    r"|(?P<moved>rename|copy) "
    r"|mode change (?P<old>[0-7]+) => (?P<new>[0-7]+))"
)
# What git's summary leaves out is tested on its own, by what git does.
_NOT_IN_THE_SUMMARY = {"renamed without a word"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus") / "repository")


def _numbers(file: AffectedFile) -> tuple[str, str, str]:
    return ("-", "-", file.path) if file.binary else (str(file.added), str(file.removed), file.path)


def _ours(diff: bytes) -> list[tuple[str, str, str]]:
    return [_numbers(file) for file in affected_files(read(diff))]


def _gits(folder: Path, diff: bytes) -> list[tuple[str, str, str]] | None:
    answer = run_git(folder, "apply", "--numstat", "-z", stdin=diff)
    if answer.returncode != 0 or b"error: " in answer.stderr:
        return None
    records = (record.split(b"\t", 2) for record in answer.stdout.split(b"\0")[:-1])
    return [(added.decode(), removed.decode(), readable_name(path)) for added, removed, path in records]


def _our_summary(diff: bytes) -> list[tuple[str | None, ...]]:
    found: list[tuple[str | None, ...]] = []
    for file in affected_files(read(diff)):
        match file.operation:
            case Operation.CREATE:
                found.append(("copy",) if file.old_path else ("create", file.new_mode))
            case Operation.DELETE:
                found.append(("delete", file.old_mode))
            case Operation.RENAME:
                found.append(("rename",))
            case Operation.MODIFY:
                pass
        if file.mode_change:
            found.append(("mode", file.old_mode, file.new_mode))
    return found


def _gits_summary(folder: Path, diff: bytes) -> list[tuple[str | None, ...]]:
    said = git(folder, "apply", "--summary", stdin=diff).decode("utf-8", "replace")
    found: list[tuple[str | None, ...]] = []
    for match in filter(None, map(_SUMMARY.match, said.split("\n"))):
        if match["verb"]:
            found.append((match["verb"], match["mode"]))
        elif match["moved"]:
            found.append((match["moved"],))
        else:
            found.append(("mode", match["old"], match["new"]))
    return found


@pytest.mark.slow
def test_paths_and_counts_of_every_odd_diff_are_those_of_git(corpus: Corpus) -> None:
    expected = {odd.name: _gits(corpus.folder, odd.diff) for odd in corpus.odd}
    assert None not in expected.values()
    assert {odd.name: _ours(odd.diff) for odd in corpus.odd} == expected


def test_operations_and_modes_of_every_odd_diff_are_those_of_git(corpus: Corpus) -> None:
    compared = [odd for odd in corpus.odd if odd.name not in _NOT_IN_THE_SUMMARY]
    expected = {odd.name: _gits_summary(corpus.folder, odd.diff) for odd in compared}
    assert {odd.name: _our_summary(odd.diff) for odd in compared} == expected


def test_old_paths_of_renames_and_copies_are_those_of_git(corpus: Corpus) -> None:
    ours: dict[str, list[tuple[str, str]]] = {}
    gits: dict[str, list[tuple[str, str]]] = {}
    for odd in corpus.odd:
        moved = [(file.old_path, file.path) for file in affected_files(read(odd.diff)) if file.old_path]
        if odd.commit and moved and odd.name != "swap":
            options = ("-M", "-C", "--find-copies-harder", "--diff-filter=RC", "--name-status", "-z", "-r")
            fields = git(corpus.folder, "diff-tree", *options, "main", odd.commit).split(b"\0")[:-1]
            gits[odd.name] = sorted(
                zip(map(readable_name, fields[1::3]), map(readable_name, fields[2::3]), strict=True)
            )
            ours[odd.name] = sorted(moved)
    assert len(ours) > 20
    assert ours == gits


def test_another_name_on_the_new_side_is_a_rename_because_git_makes_it_one(corpus: Corpus) -> None:
    diff = corpus["renamed without a word"].diff
    git(corpus.folder, "apply", "--cached", stdin=diff)
    happened = git(corpus.folder, "diff", "--cached", "--name-status", "-M")
    git(corpus.folder, "reset", "-q")
    assert happened.startswith(b"R")
    (file,) = affected_files(read(diff))
    assert (file.operation, file.old_path, file.path) == (Operation.RENAME, "twenty.txt", "thirty.txt")


def test_a_folder_that_ends_in_a_space_does_not_hide_the_name() -> None:
    (file,) = affected_files(read(b"diff --git a/x /b/y b/x /b/y\nold mode 100644\nnew mode 100755\n"))
    assert (file.path, file.mode_change) == ("x /b/y", True)


def test_a_mode_is_understood_however_many_zeros_stand_before_it() -> None:
    diff = b"diff --git a/x b/x\nnew file mode 00120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+..\n"
    assert read(diff)[0].new_mode == "120000"


def test_files_and_hunks_tell_where_they_stand(corpus: Corpus) -> None:
    for odd in corpus.odd:
        files = read(odd.diff)
        assert [file.end for file in files] == [*(file.start for file in files[1:]), len(odd.diff)], odd.name
        for file in files:
            for hunk in file.hunks:
                assert odd.diff.startswith(b"@@ -", hunk.start)
                assert odd.diff[hunk.body - 1 : hunk.body] == b"\n" == odd.diff[hunk.end - 1 : hunk.end]
                assert file.start < hunk.start < hunk.body < hunk.end <= file.end


@pytest.mark.parametrize(
    ("block", "size"),
    [
        (binary_block("literal", 5, b"small"), 5),
        (binary_block("literal", 1_000_000, b"\0" * 1_000_000), 1_000_000),
        (binary_block("delta", 20, b"\x05\x80\x80\x80\x80\x80\x80\x02" + b"\x80" * 13), 2**43),
        (binary_block("literal", 5, b"small") + binary_block("literal", 70_000, bytes(70_000)), 70_000),
    ],
    ids=["small", "large", "delta that grows", "larger the other way"],
)
def test_a_binary_patch_tells_how_large_it_gets_before_anybody_unpacks_it(block: str, size: int) -> None:
    diff = f"diff --git a/x b/x\nindex 1111111..2222222 100644\nGIT binary patch\n{block}"
    assert read(diff.encode())[0].unpacked_bytes == size


_SYLLABLES = [b"a", b"b", b" ", b"\t", b'"', b"\\", b"\n", b"\xc3\xa9", b"\xff", b"-", b"..x"]
_COMPONENTS = st.lists(st.sampled_from(_SYLLABLES), min_size=1, max_size=4).map(b"".join)
# A folder that ends in a space is what git before 2.41 trips over.
_PATHS = st.lists(_COMPONENTS, min_size=1, max_size=3).map(b"/".join).filter(lambda path: b" /" not in path)
_HEADERS = [b"--- a/x", b"+++ b/x", b"@@ -1 +1 @@", b"diff --git a/x b/x"]
_LINES = st.lists(st.sampled_from([b"", b" ", b"x", b"yy", b"\r", b"\\ No", b"\x0c", *_HEADERS]), max_size=12)
_CONTENTS = st.builds(
    lambda lines, end, tail: b"\n".join(lines) + end + tail,
    _LINES,
    st.sampled_from([b"", b"\n"]),
    st.sampled_from([b"", b"", b"", b"\0"]),
)
_ENTRIES = st.one_of(st.none(), st.tuples(st.sampled_from([FILE, FILE, PROGRAM, LINK]), _CONTENTS))
_TREES: st.SearchStrategy[Tree] = st.dictionaries(_PATHS, _ENTRIES, min_size=1, max_size=5)


def _is_possible(tree: Tree) -> bool:
    """No path is both a file and a folder; a link leads somewhere, and not through a NUL."""
    paths = [path for path, entry in tree.items() if entry is not None]
    links = [entry[1] for entry in tree.values() if entry and entry[0] == LINK]
    nested = any(other.startswith(path + b"/") for path in paths for other in paths)
    return not nested and all(link and b"\0" not in link for link in links)


_OPTIONS = st.sampled_from([("--binary", "-M", "-C"), ("-U0",), ("-B", "-M")])


@given(before=_TREES, after=_TREES, both=_TREES, options=_OPTIONS)
@pytest.mark.slow
def test_any_two_trees_give_a_diff_that_we_read_as_git_does(
    corpus: Corpus, before: Tree, after: Tree, both: Tree, options: tuple[str, ...]
) -> None:
    old, new = {**both, **before}, {**both, **after}
    assume(_is_possible(old) and _is_possible(new))
    present = ({path: entry for path, entry in tree.items() if entry} for tree in (old, new))
    diff = diff_of_trees(corpus.folder, *present, *options)
    assume(diff)
    assert _ours(diff) == _gits(corpus.folder, diff)
    assert _our_summary(diff) == _gits_summary(corpus.folder, diff)


_HEADER_LINES = b"""--- a/x
+++ b/x
--- /dev/null
+++ /dev/null
--- x
+++ x
--- "a/x y"
+++ "b/x\\q"
+++ b/x\t1970-01-01 00:00:00 +0000
@@ -1 +1 @@
@@ -1,2 +1,2 @@
@@ -0,0 +1 @@
diff --git a/x b/x
new file mode 100644
deleted file mode 100644
old mode 100644
new mode 100755
rename from x
rename to y
copy from x
copy to y
similarity index 5%
index 123..456 100644
GIT binary patch
literal 0
HcmV?d00001
Binary files a/x and b/x differ
\\ No newline at end of file
\\ short

+
-
some text
""".splitlines(keepends=True)
_BYTES = b'0123456789 /\t\r\n"\\ab-+@,.\xff'


def _without(chance: random.Random, lines: list[bytes], at: int) -> None:
    del lines[at]


def _doubled(chance: random.Random, lines: list[bytes], at: int) -> None:
    lines.insert(at, lines[at])


def _swapped(chance: random.Random, lines: list[bytes], at: int) -> None:
    other = chance.randrange(len(lines))
    lines[at], lines[other] = lines[other], lines[at]


def _with_header_line(chance: random.Random, lines: list[bytes], at: int) -> None:
    lines.insert(at, chance.choice(_HEADER_LINES))


def _cut_off(chance: random.Random, lines: list[bytes], at: int) -> None:
    del lines[at + 1 :]
    lines[at] = lines[at][: chance.randrange(len(lines[at]) + 1)]


def _with_another_byte(chance: random.Random, lines: list[bytes], at: int) -> None:
    place = chance.randrange(len(lines[at]) + 1)
    keep = place + chance.randrange(2)
    lines[at] = lines[at][:place] + bytes([chance.choice(_BYTES)]) + lines[at][keep:]


_MUTATIONS: list[Callable[[random.Random, list[bytes], int], None]] = [
    _without, _doubled, _swapped, _with_header_line, _cut_off, _with_another_byte,
]  # fmt: skip


def _mutated(chance: random.Random, diff: bytes) -> bytes:
    lines = diff.splitlines(keepends=True)
    for _ in range(chance.randint(1, 4)):
        if lines:
            # Half of the time in the header, where the grammar is.
            at = chance.randrange(len(lines) if chance.random() < 0.5 else min(8, len(lines)))
            chance.choice(_MUTATIONS)(chance, lines, at)
    return b"".join(lines)


@settings(max_examples=100)
@given(seed=st.integers(min_value=0, max_value=2**32))
@pytest.mark.slow
def test_a_broken_diff_is_refused_or_read_as_git_reads_it(corpus: Corpus, seed: int) -> None:
    """Git is more lenient than we are in these ways, each seen in this test and none in a diff made in good faith:

    - a header that changes nothing: numstat lists it, and applying it is refused as we refuse it;
    - a broken binary patch: git says so, applies what stands above it and ignores what stands below;
    - a quoted name that goes on to the next line; a mode with a sign, or on the next line;
    - a `diff --git` line with nothing below it, whose name git then gives to the file that follows;
    - a created file with an old name, a deleted one with a new name.

    We are more lenient in one: packed binary data is not unpacked here.
    """
    chance = random.Random(seed)
    diff = _mutated(chance, chance.choice([odd.diff for odd in corpus.odd if len(odd.diff) < 6_000]))
    try:
        ours = _ours(diff)
    except UnreadableDiffError:
        return
    gits = _gits(corpus.folder, diff)
    assert gits is None or ours == gits


@given(diff=st.binary(max_size=2_000))
def test_bytes_of_any_kind_are_refused_politely(diff: bytes) -> None:
    with pytest.raises(UnreadableDiffError):
        read(b"diff --git " + diff)


def _tolerant(diff: bytes) -> None:
    with contextlib.suppress(UnreadableDiffError):
        read(diff)


def _repeated(piece: str, size: int) -> bytes:
    return (piece * (size // len(piece))).encode()


_HEADER = "diff --git a/x b/x\n--- a/x\n+++ b/x\n"
_LARGE = {
    "small hunks": _HEADER.encode() + _repeated("@@ -1 +1 @@\n-a\n+b\n", 2 * 2**20),
    "small lines": f"{_HEADER}@@ -0,0 +1,1000000 @@\n".encode() + b"+\n" * 1_000_000,
    "small files": _repeated(_HEADER + "@@ -1 +1 @@\n-a\n+b\n", 2**19),
    "plain headers": _repeated("--- a\n+++ b\n", 2**19),
    "bare headers": _repeated("diff --git a/x b/x\n", 2**19),
    "a long line": f"{_HEADER}@@ -0,0 +1 @@\n+{'x' * 2**20}\n".encode(),
    "a long hunk header": f"{_HEADER}@@ -0,0 +1 @@{'x' * 2**20}\n+x\n".encode(),
    "a long line above": b"x" * 2**20 + b"\n" + _HEADER.encode() + b"@@ -0,0 +1 @@\n+x\n",
    "a long line between header and hunk": _HEADER.encode() + b"x" * 2**20 + b"\n@@ -0,0 +1 @@\n+x\n",
    "a long name": b"--- a/" + b"x" * 2**20 + b"\n+++ b/" + b"x" * 2**20 + b"\n@@ -0,0 +1 @@\n+x\n",
    "a name of spaces": b"--- a/" + b" " * 2**20 + b"x\n+++ b/" + b" " * 2**20 + b"2020-01-01\n@@ -0,0 +1 @@\n+x\n",
    "binary lines": b"diff --git a/x b/x\nindex 1..2 100644\nGIT binary patch\nliteral 9\n" + b"A00000\n" * 250_000,
    "quotes": b"diff --git " + b'"\\" ' * 400_000,
    **{case.name: case.diff.encode() for case in hostile() if case.name.startswith("a header full of")},
}


@pytest.mark.parametrize("name", _LARGE)
@pytest.mark.slow
def test_reading_takes_time_in_proportion_to_the_size(name: str) -> None:
    assert times_a_loop(_tolerant, _LARGE[name]) < LIMIT
