"""Paths that a change must never name: outside the tree, or inside git's own folder."""

import re
from collections.abc import Callable, Iterator

from gsd_review_broker.domain.patch.headers import (
    UnreadableDiffError,
    is_dev_null,
    moved_name,
    readable_name,
    traditional_name,
    unquoted_name,
    without_prefix,
)
from gsd_review_broker.domain.patch.reading import FilePatch

# Characters that HFS+ drops from names, so that `.g\u200cit` is `.git` on some machines.
_IGNORED_BY_HFS = re.compile("[\u200c\u200d\u200e\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_SHOWN = 200  # characters of a path in an answer
_LONGEST_PATH = 4096  # no file system takes more
_REGULAR = {"100644", "100755"}
_DRIVE = re.compile(r"[A-Za-z]:")
_SIDE = re.compile(rb"^(?:--- |\+\+\+ )(.*)$", re.MULTILINE)
_MOVED = re.compile(rb"^(?:rename (?:from|to|old|new) |copy (?:from|to) )(.*)$", re.MULTILINE)
_GIT = re.compile(rb"^diff --git (.*)$", re.MULTILINE)


def unsafe_paths(diff: bytes, files: tuple[FilePatch, ...] | None) -> list[str]:
    """Find paths that leave the tree, enter .git or go through a link, whatever git would make of them.

    If the diff could not be read (None), every line that looks like a header is checked, so that nothing hides behind a
    broken hunk. Names are also checked before git strips their first component: an absolute path is refused even though
    git would strip the slash.
    """
    unsafe = _in_headers(files) if files is not None else set(filter(_is_unsafe_as_written, _header_like(diff)))
    return sorted(path if len(path) <= _SHOWN else path[:_SHOWN] + "…" for path in unsafe)


def _in_headers(files: tuple[FilePatch, ...]) -> set[str]:
    paths = {path for file in files for path in (file.old_path, file.new_path) if path and is_unsafe(path)}
    paths |= _through_links(files)
    return paths or {name for file in files for name in file.mentioned if _is_unsafe_as_written(name)}


def _through_links(files: tuple[FilePatch, ...]) -> set[str]:
    """Find paths below one that the same diff makes a link or a submodule, or moves without a mode."""
    doors: set[str | None] = set()
    unsafe: set[str] = set()
    for file in files:
        if file.new_path is None or file.renamed:
            doors.discard(file.old_path)
        if file.new_path is None:
            continue
        if doors and not doors.isdisjoint(_folders(file.new_path)):
            unsafe.add(file.new_path)
        if file.new_mode not in _REGULAR and (file.new_mode or file.renamed or file.copied):
            doors.add(file.new_path)
    return unsafe


def _folders(path: str) -> Iterator[str]:
    path = path[:_LONGEST_PATH]
    place = path.find("/")
    while place >= 0:
        yield path[:place]
        place = path.find("/", place + 1)


def is_unsafe(path: str) -> bool:
    if path.startswith(("/", "\\")) or _DRIVE.match(path) or "\0" in path:
        return True
    return any(_is_unsafe_component(part) for part in re.split(r"[/\\]", path))


def _is_unsafe_as_written(name: str) -> bool:
    """Check a name before git strips its prefix. `./x` is harmless: `diff -u ./x` writes it."""
    return is_unsafe(name.removeprefix("./"))


def _is_unsafe_component(part: str) -> bool:
    if part in {"..", "."}:
        return True
    plain = _IGNORED_BY_HFS.sub("", part).casefold()
    # NTFS: trailing dots and spaces vanish, a colon starts a stream's name, git~1 is the short name.
    plain = plain.partition(":")[0].rstrip(". ")
    return plain in {".git", "git~1"}


def _header_like(diff: bytes) -> Iterator[str]:
    for match in _MOVED.finditer(diff):
        yield readable_name(_or_raw(moved_name, match.group(1)))
    for match in _SIDE.finditer(diff):
        if not is_dev_null(match.group(1)):
            for strip in (0, 1):
                yield readable_name(_or_raw(lambda raw, strip=strip: traditional_name(raw, strip), match.group(1)))
    for match in _GIT.finditer(diff):
        for name in _both_names(match.group(1)):
            yield readable_name(name)
            yield readable_name(without_prefix(name, 1) or b"")


def _or_raw(name_in: Callable[[bytes], bytes | None], raw: bytes) -> bytes:
    try:
        return name_in(raw) or raw
    except UnreadableDiffError:
        return raw


def _both_names(raw: bytes) -> set[bytes]:
    """Split the two names. Without quotes their border may be ambiguous: then each word is taken as a name."""
    first, quote, rest = raw.partition(b'"')
    try:
        quoted = unquoted_name(quote + rest) if quote else None
        if quoted is None:
            return set(raw.split())
        second = quoted[1].strip(b" ")
        other = unquoted_name(second) if second.startswith(b'"') else None
    except UnreadableDiffError:
        return set(raw.split())
    return {first.rstrip(b" "), quoted[0], other[0] if other else second}


_KINDS = {"100644": "file", "100755": "file", "120000": "link", "160000": "submodule"}
_MOST_NAMED = 5


def unclear_sections(files: tuple[FilePatch, ...]) -> str | None:
    """Say why a reader could be mistaken about the outcome; None if nothing is unclear."""
    repeated = _repeated(files)
    if repeated:
        return f"it changes a path more than once: {', '.join(map(repr, repeated[:_MOST_NAMED]))}"
    modes = {mode for file in files for mode in (file.old_mode, file.new_mode) if mode and mode not in _KINDS}
    if modes:
        return f"it names file modes that git does not store: {', '.join(sorted(modes)[:_MOST_NAMED])}"
    return None


def _repeated(files: tuple[FilePatch, ...]) -> list[str]:
    """Find paths that two sections write or remove. Git itself writes one such pair: a file that becomes a link or a
    submodule, or the other way round, is removed and then created."""
    changed: dict[str, FilePatch] = {}
    repeated: set[str] = set()
    for file in files:
        # A copy leaves its source alone.
        for path in filter(None, {file.new_path, None if file.copied else file.old_path}):
            earlier = changed.get(path)
            if earlier is not None and not _changes_kind(earlier, file):
                repeated.add(path)
            changed[path] = file
    return sorted(repeated)


def _changes_kind(removed: FilePatch, created: FilePatch) -> bool:
    if removed.new_path is not None or created.old_path is not None:
        return False
    return _KINDS.get(removed.old_mode or "") != _KINDS.get(created.new_mode or "")
