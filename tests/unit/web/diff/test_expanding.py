"""More of a file than its diff shows, compared with git's own diff with as many lines of context."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gsd_review_broker.web.diff.document import DiffDocument, from_diff
from gsd_review_broker.web.diff.documents import Documents

OLD = [f"line {number}" for number in range(1, 61)]
NEW = [*OLD[:4], "changed", *OLD[5:29], "more", "and more", *OLD[29:49], *OLD[52:]]


def text(lines: list[str]) -> bytes:
    return b"".join(line.encode() + b"\n" for line in lines)


def git_diff(folder: Path, old: list[str], new: list[str], context: int) -> bytes:
    for name, lines in (("a", old), ("b", new)):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "f.txt").write_bytes(text(lines))
    command = ["git", "diff", "--no-index", f"-U{context}", "--no-prefix", "a/f.txt", "b/f.txt"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).stdout


def document(diff: bytes) -> DiffDocument:
    read = from_diff("key", diff)
    assert read is not None
    return read


def rows(hunks: list[object]) -> list[list[tuple[str, str, int | None, int | None]]]:
    return [[(row.kind, row.text, row.old, row.new) for row in hunk.rows] for hunk in hunks]  # type: ignore[attr-defined]


def more(diff: bytes, base: bytes, around: int | None) -> list[object] | None:
    documents = Documents(None)  # type: ignore[arg-type]
    answer = documents.expanded(document(diff), 0, base, around)
    return None if answer is None else list(answer[0])


@pytest.mark.parametrize("shown", [0, 3])
@pytest.mark.parametrize("around", [3, 8, 20, 60])
def test_lines_around_are_those_that_git_shows_with_as_much_context(tmp_path: Path, shown: int, around: int) -> None:
    diff = git_diff(tmp_path, OLD, NEW, shown)
    added = more(diff, text(OLD), around - shown)
    assert added is not None
    assert rows(added) == rows(document(git_diff(tmp_path, OLD, NEW, around)).hunks(0))


def test_the_whole_file_holds_every_line_once(tmp_path: Path) -> None:
    whole = more(git_diff(tmp_path, OLD, NEW, 3), text(OLD), None)
    assert whole is not None
    [hunk] = rows(whole)
    assert [line for kind, line, _, _ in hunk if kind != "+"] == OLD
    assert [line for kind, line, _, _ in hunk if kind != "-"] == NEW
    assert [new for _, _, _, new in hunk if new is not None] == list(range(1, len(NEW) + 1))


def test_a_base_that_the_hunks_do_not_fit_shows_nothing(tmp_path: Path) -> None:
    diff = git_diff(tmp_path, OLD, NEW, 3)
    assert more(diff, text(["another", *OLD]), None) is None


@settings(max_examples=20)
@given(st.lists(st.sampled_from("ab"), max_size=30), st.lists(st.sampled_from("abc"), max_size=30), st.integers(0, 9))
def test_whatever_changes_both_sides_can_be_read_from_the_whole_file(
    tmp_path_factory: pytest.TempPathFactory, old: list[str], new: list[str], shown: int
) -> None:
    diff = git_diff(tmp_path_factory.mktemp("x"), old, new, shown)
    if not diff or not old or not new:
        return
    whole = more(diff, text(old), None)
    assert whole is not None
    lines = [line for hunk in rows(whole) for line in hunk]
    assert [line for kind, line, _, _ in lines if kind != "+"] == old
    assert [line for kind, line, _, _ in lines if kind != "-"] == new
