"""Paths in gitignore syntax: the gate's own matcher agrees with git's."""

import subprocess
from pathlib import Path

import pytest

from gsd_review_broker.domain.gate.policy import Patterns

PATHS = (
    "a", "b", "z", "ab", "a/b", "a-b", "[", "]", "-", "!", "^", "[a", "a]b", "a[b", "a[", "[ab", "b/[a", "a/[b", "\\",
    "a\\b", "\u00e9", "a\u00e9", "1", ".a", "A", "a/b/a",
)  # fmt: skip


def named_by_git(folder: Path, pattern: str) -> set[str]:
    (folder / ".git" / "info" / "exclude").write_text(f"{pattern}\n")
    done = subprocess.run(
        ["git", "-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=folder, input="\0".join((*PATHS, "")).encode(), capture_output=True, check=False,
    )  # fmt: skip
    return set(done.stdout.decode().split("\0")) - {""}


@pytest.mark.parametrize(
    "pattern",
    [
        # Without its closing bracket, it matches nothing.
        "a[", "a[b", "[", "[a", "b/[a", "[!", "[^a", "[]", "[!]", "[[:alpha:]", "[[:alpha", "[a\\]", "[\\",
        # With it.
        "[]]", "[!]]", "[]a]", "[^a]", "[!a]b", "a[]]b", "[\\]]", "[\\]a]", "[[]", "[[a]", "[a-]", "[-a]", "[a-b]",
        "[z-a]", "[a-\\b]", "[!-~]", "a[/]b", "a[!x]b", "[^-]", "[[:alpha:]]", "[![:alpha:]]", "[[:upper:]1]",
        "[[:none:]]", "[[:]", "[[::]]", "[[:punct:]]", "[[:alpha:]-z]", "[.]a", "[\u00e9]", "?", "a?", "??", "\\",
        "a\\", "\\[a", "a/[[]b",
    ],
)  # fmt: skip
def test_a_pattern_names_the_paths_that_git_ignores_by_it(repository: Path, pattern: str) -> None:
    patterns = Patterns([pattern])
    assert {path for path in PATHS if patterns.match(path.encode())} == named_by_git(repository, pattern)
