"""A cache of documents with their warnings. A revision never changes, so a cached document stays valid.

A document can be expanded: lines of the base around each hunk, or the whole file with the change in it.
"""

import asyncio
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gsd_review_broker.domain.model import CounterPatch, ReviewId
from gsd_review_broker.domain.patch import reading
from gsd_review_broker.domain.text import changes_direction, hidden_in, may_hide
from gsd_review_broker.service.queries.review_page import ReviewPageQueries
from gsd_review_broker.web.addresses import LineName
from gsd_review_broker.web.diff.document import DiffDocument, Row, ShownFile, ShownHunk, from_diff, from_two
from gsd_review_broker.web.diff.highlighting import Pieces, highlighted
from gsd_review_broker.web.text import name_of

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
    """Warn by names and modes."""
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
    """Warn of bidi and other invisible characters in the added lines."""
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


_MOST_BYTES = 8 * 1024 * 1024
# Characters; a parsed document takes about thirty times as much memory.
_MOST_COLOURED = 1_000_000
_LINE_BYTES = 100


@dataclass(frozen=True, slots=True)
class ReplacedLines:
    """The lines of the base that a hunk replaces, counted from 0, and by how much later lines move."""

    start: int
    stop: int
    grows: int
    rows: tuple[Row, ...]


def expanded(replaced: Sequence[ReplacedLines], base: Sequence[str], around: int | None) -> list[ShownHunk]:
    """Hunks with `around` lines on both sides, all lines if it is None. Hunks that meet become one."""
    hunks: list[ShownHunk] = []
    rows: list[Row] = []
    at = moved = 0
    for number, part in enumerate(replaced, 1):
        first = at if around is None else max(at, part.start - around)
        if rows and first > at:
            hunks.append(_hunk(rows))
            rows = []
        rows += _unchanged(base, first, part.start, moved)
        rows += part.rows
        moved += part.grows
        at = part.stop
        following = replaced[number].start if number < len(replaced) else len(base)
        last = min(following, len(base) if around is None else at + around)
        rows += _unchanged(base, at, last, moved)
        at = last
    return [*hunks, _hunk(rows)] if rows else hunks


def _unchanged(base: Sequence[str], start: int, stop: int, moved: int) -> Iterator[Row]:
    return (Row(" ", base[index], index + 1, index + 1 + moved) for index in range(start, stop))


def _hunk(rows: list[Row]) -> ShownHunk:
    olds = [row.old for row in rows if row.old is not None]
    news = [row.new for row in rows if row.new is not None]
    old, new = min(olds, default=0), min(news, default=0)
    return ShownHunk(f"@@ -{old},{len(olds)} +{new},{len(news)} @@", tuple(rows))


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document with the warnings about each of its files; the raw text if the diff cannot be read."""

    document: DiffDocument | None
    warnings: tuple[tuple[Warned, ...], ...]
    raw: str
    size: int

    def path_at(self, name: str) -> str | None:
        """Return the file of the line with this name."""
        line = LineName.of(name)
        files = self.document.files if self.document else ()
        return files[line.file].path if line is not None and line.file < len(files) else None


class Documents:
    def __init__(self, pages: ReviewPageQueries) -> None:
        self._pages = pages
        self._kept: OrderedDict[str, PreparedDocument] = OrderedDict()
        self._coloured: OrderedDict[tuple[str, int], tuple[list[ShownHunk], list[list[Pieces]], int]] = OrderedDict()

    async def revision(self, review_id: ReviewId, number: int) -> PreparedDocument:
        key = f"{review_id} {number}"
        known = self._known(key)
        if known is not None:
            return known
        diff = await self._pages.diff(review_id, number) or b""
        return await self._make(key, diff, lambda: from_diff(key, diff) if diff else DiffDocument(key, (), None))

    async def between(self, review_id: ReviewId, since: int, number: int) -> PreparedDocument:
        key = f"{review_id} {since}..{number}"
        known = self._known(key)
        if known is not None:
            return known
        old, new = await self._pages.diff(review_id, since), await self._pages.diff(review_id, number)
        return await self._make(key, new or b"", lambda: from_two(key, old, new))

    async def counter_patch(self, patch: CounterPatch, *, whole: bool) -> PreparedDocument:
        key = f"{patch.review_id} patch {patch.id} {whole}"
        known = self._known(key)
        if known is not None:
            return known
        if whole:
            return await self._make(key, patch.diff, lambda: from_diff(key, patch.diff))
        proposed = await self._pages.diff(patch.review_id, patch.revision)
        return await self._make(key, patch.diff, lambda: from_two(key, proposed, patch.diff))

    def _known(self, key: str) -> PreparedDocument | None:
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    async def _make(self, key: str, diff: bytes, make: Callable[[], DiffDocument | None]) -> PreparedDocument:
        prepared = await asyncio.to_thread(lambda: _prepared(make(), diff))
        self._kept[key] = prepared
        while sum(one.size for one in self._kept.values()) > _MOST_BYTES and len(self._kept) > 1:
            self._kept.popitem(last=False)
        return prepared

    def expanded(
        self, document: DiffDocument, index: int, base: bytes, around: int | None
    ) -> tuple[list[ShownHunk], list[list[Pieces]]] | None:
        """Add lines of the base. None if the hunks are not at their own lines there. Slow: call it in a thread."""
        replaced = _replaced(document, index, base)
        if replaced is None:
            return None
        hunks = expanded(replaced, [line.decode("utf-8", "replace") for line in _lines(base)], around)
        return hunks, highlighted(document.files[index].path, hunks)

    def coloured(self, document: DiffDocument, index: int) -> tuple[list[ShownHunk], list[list[Pieces]]]:
        """Slow: call it in a thread."""
        key = document.key, index
        known = self._coloured.get(key)
        if known is None:
            hunks = document.hunks(index)
            size = sum(len(row.text) for hunk in hunks for row in hunk.rows)
            known = hunks, highlighted(document.files[index].path, hunks), size
            self._coloured[key] = known
            while sum(one[2] for one in list(self._coloured.values())) > _MOST_COLOURED:
                self._coloured.popitem(last=False)
        return known[0], known[1]


def _replaced(document: DiffDocument, index: int, base: bytes) -> list[ReplacedLines] | None:
    known = document.patch(index)
    if known is None or reading.applied(*known, base) is None:
        return None
    replaced: list[ReplacedLines] = []
    for hunk, shown in zip(known[1].hunks, document.hunks(index), strict=True):
        # A side without lines names the line before it.
        start = hunk.old_start - 1 if hunk.old_count else hunk.old_start
        replaced.append(ReplacedLines(start, start + hunk.old_count, hunk.new_count - hunk.old_count, shown.rows))
    return replaced


def _lines(base: bytes) -> list[bytes]:
    lines = base.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def _prepared(document: DiffDocument | None, diff: bytes) -> PreparedDocument:
    if document is None:
        return PreparedDocument(None, (), diff.decode("utf-8", "replace"), len(diff))
    warned = about_files(document.files)
    if may_hide(diff):
        for file in document.files:
            warned[file.index] += about_content(document.hunks(file.index))
    for index, moved in _moved_whole(document).items():
        warned[index].append(moved)
    return PreparedDocument(
        document, tuple(map(tuple, warned)), "", document.size + len(diff) + _LINE_BYTES * document.lines
    )


def _moved_whole(document: DiffDocument) -> dict[int, Warned]:
    """Find files that are removed here and added there, without a rename header."""
    gone: dict[int, str] = {}
    for file in document.files:
        if file.operation == "delete" and file.removed:
            gone[_content_key(document, file.index)] = file.path
    warnings: dict[int, Warned] = {}
    if gone:
        for file in document.files:
            source = gone.get(_content_key(document, file.index)) if file.operation == "create" and file.added else None
            if source is not None:
                warnings[file.index] = Warned(f"moved: the same content as {source}, which is removed")
    return warnings


def _content_key(document: DiffDocument, index: int) -> int:
    return hash(tuple(row.text for hunk in document.hunks(index) for row in hunk.rows))
