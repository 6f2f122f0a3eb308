"""Paths that a change must never name: outside the tree, or inside git's own folder."""

import re

from gsd_review_broker.patch import names
from gsd_review_broker.patch.reading import FilePatch

# Characters that HFS+ drops from names, so that `.g\u200cit` is `.git` on some machines.
_IGNORED_BY_HFS = re.compile("[\u200c\u200d\u200e\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_DRIVE = re.compile(r"[A-Za-z]:")
_HEADER = re.compile(
    rb"^(?:(diff --git )|(--- |\+\+\+ )|(rename (?:from|to|old|new) |copy (?:from|to) ))(.*)$", re.MULTILINE
)
_QUOTED_WORD = re.compile(rb'"(?:[^"\\]|\\.)*"|\S+')


def unsafe_paths(diff: bytes, files: tuple[FilePatch, ...] | None) -> list[str]:
    """Which paths leave the tree or enter .git, whatever git would make of them.

    For a diff that could not be read (None), every header-like line is looked at, so that nothing hides
    behind a broken hunk. What a line says before `-p1` counts as well: an absolute path is refused even
    though git would strip its slash.
    """
    if files is None:
        return sorted({path for path in _mentioned(diff) if is_unsafe(path)})
    paths = {path for file in files for path in (file.old_path, file.new_path) if path and is_unsafe(path)}
    return sorted(paths | {name for file in files for name in file.written if name.startswith("/")})


def is_unsafe(path: str) -> bool:
    if path.startswith(("/", "\\")) or _DRIVE.match(path) or "\0" in path:
        return True
    return any(_is_unsafe_component(part) for part in re.split(r"[/\\]", path))


def _is_unsafe_component(part: str) -> bool:
    if part in {"..", "."}:
        return True
    plain = _IGNORED_BY_HFS.sub("", part).casefold()
    # NTFS: trailing dots and spaces vanish, a colon starts a stream's name, git~1 is the short name.
    plain = plain.partition(":")[0].rstrip(". ")
    return plain in {".git", "git~1"}


def _mentioned(diff: bytes) -> set[str]:
    found: set[str] = set()
    for match in _HEADER.finditer(diff):
        rest = match.group(4)
        words = [rest] if match.group(3) else _QUOTED_WORD.findall(rest) if match.group(1) else [rest]
        for word in words:
            name = names.raw_name(word, to_tab=True)
            if not name or names.is_nothing(name):
                continue
            found.add(names.text(name))
            if not match.group(3) and (short := names.without_first_component(name)):
                found.add(names.text(short))
    return found
