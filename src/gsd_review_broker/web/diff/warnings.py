"""Warnings that a reviewer should not have to look for: links, programs, misleading names, hidden characters."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gsd_review_broker.domain.text import changes_direction, hidden_in
from gsd_review_broker.web.diff.document import ShownFile, ShownHunk
from gsd_review_broker.web.diff.invisible import name_of

_LINK, _MODULE, _PROGRAM = "120000", "160000", "100755"
# Files that run, or decide what runs, for people, agents or CI that take the change.
_DECIDES_WHAT_RUNS = re.compile(
    r"(^|/)(\.github/workflows/|\.gitlab-ci|\.circleci/|\.husky/|\.githooks/|\.claude/|\.codex/|\.gemini/|\.cursor/"
    r"|\.vscode/(tasks|launch|settings)|\.idea/|\.devcontainer/)"
    r"|(^|/)(\.mcp\.json|\.envrc|\.gitattributes|\.gitmodules|\.gitconfig|\.pre-commit-config\.yaml|\.npmrc|\.pypirc"
    r"|AGENTS\.md|CLAUDE\.md|GEMINI\.md|opencode\.json)$",
    re.IGNORECASE,
)
_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class Warned:
    """`is_grave` marks what is more likely a trick than a habit."""

    text: str
    is_grave: bool = False


def about_files(files: Sequence[ShownFile]) -> list[list[Warned]]:
    """From their names and modes alone."""
    alike = Counter(file.path.casefold() for file in files)
    return [[*_about_mode(file), *_about_name(file, alike)] for file in files]


def _about_mode(file: ShownFile) -> list[Warned]:
    warnings: list[Warned] = []
    if file.new_mode == _LINK:
        warnings.append(Warned("symbolic link: its content is the path of its target", is_grave=True))
    if file.new_mode == _MODULE:
        warnings.append(Warned("submodule: its commit id brings in other code", is_grave=True))
    if file.new_mode == _PROGRAM and file.old_mode != _PROGRAM:
        warnings.append(Warned("becomes a program (mode 755)"))
    elif file.old_mode and file.new_mode and file.old_mode != file.new_mode:
        warnings.append(Warned(f"mode {file.old_mode} becomes {file.new_mode}"))
    if file.binary:
        warnings.append(Warned("binary: its content cannot be read here"))
    return warnings


def _about_name(file: ShownFile, alike: Counter[str]) -> list[Warned]:
    warnings: list[Warned] = []
    path = file.path
    if _DECIDES_WHAT_RUNS.search(path):
        warnings.append(Warned("decides what runs on the machine of anyone who takes the change"))
    if hidden_in(path, is_block=True):
        warnings.append(Warned("its name has invisible characters", is_grave=True))
    if "\\" in path or path != path.strip() or path.startswith("-") or path.endswith("."):
        warnings.append(Warned("its name is one that programs misread", is_grave=True))
    if alike[path.casefold()] > 1:
        warnings.append(Warned("another file has this name, or a name that differs only in case", is_grave=True))
    return warnings


def about_content(hunks: Sequence[ShownHunk]) -> list[Warned]:
    """From the added lines: bidi and other invisible characters."""
    counted: Counter[str] = Counter()
    for hunk in hunks:
        for row in hunk.rows:
            if row.kind == "+" and not (row.text.isascii() and row.text.isprintable()):
                # Windows ends lines with a carriage return and a line feed.
                counted.update(hidden_in(row.text.removesuffix("\r"), is_block=True))
    if not counted:
        return []
    named = [f"{name_of(character)} ({count})" for character, count in counted.most_common(_MOST_NAMED)]
    more = " …" if len(counted) > _MOST_NAMED else ""
    bidi = any(map(changes_direction, counted))
    kind = "characters that change the text direction" if bidi else "invisible characters"
    return [Warned(f"adds {kind}: {', '.join(named)}{more}", is_grave=True)]
