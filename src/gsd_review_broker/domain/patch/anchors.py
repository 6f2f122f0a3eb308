"""The lines that a diff shows of a file, each with its place on both sides."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from gsd_review_broker.domain.patch.reading import FilePatch, UnreadableDiffError, read
from gsd_review_broker.domain.words import Anchor, Side


@dataclass(frozen=True, slots=True)
class PatchLine:
    """`kind` is a space, + or -. The number is None on a side that does not have the line."""

    kind: str
    text: str
    old: int | None
    new: int | None
    # Only the last line of a file may be without a line feed.
    is_ended: bool = True

    def number(self, side: Side) -> int | None:
        return self.new if side is Side.NEW else self.old


def lines_of(diff: bytes, file: FilePatch) -> Iterator[PatchLine]:
    for hunk in file.hunks:
        old, new = hunk.old_start, hunk.new_start
        raw_lines = diff[hunk.body : hunk.end].removesuffix(b"\n").split(b"\n")
        for raw, following in zip_longest(raw_lines, raw_lines[1:], fillvalue=b""):
            kind, text = chr(raw[0]) if raw else " ", raw[1:].decode("utf-8", "replace")
            is_ended = not following.startswith(b"\\")
            match kind:
                case "+":
                    yield PatchLine("+", text, None, new, is_ended)
                    new += 1
                case "-":
                    yield PatchLine("-", text, old, None, is_ended)
                    old += 1
                case " ":
                    yield PatchLine(" ", text, old, new, is_ended)
                    old, new = old + 1, new + 1
                case _:
                    # "\ No newline at end of file" is about the line above; it is not a line itself.
                    continue


# A block in another file must have this much text to count as a match: a lone brace is everywhere.
_TELLING_CHARACTERS = 12


@dataclass(frozen=True, slots=True)
class LinePlace:
    path: str | None
    line_start: int | None
    line_end: int | None
    side: Side
    anchor: Anchor
    text: str | None


class ShownLines:
    """The lines that a diff shows, indexed once for all the remarks that are looked up in it."""

    def __init__(self, diff: bytes | None) -> None:
        self._diff = diff or b""
        try:
            self._files = read(self._diff) if diff else ()
        except UnreadableDiffError:
            self._files = ()
        self._cache: dict[tuple[int, Side], list[tuple[int, str]]] = {}

    def _shown(self, file: FilePatch, side: Side) -> list[tuple[int, str]]:
        key = file.start, side
        if key not in self._cache:
            numbered = ((line.number(side), line.text) for line in lines_of(self._diff, file))
            self._cache[key] = [(number, text) for number, text in numbered if number is not None]
        return self._cache[key]

    def place(self, path: str | None, line_start: int | None, line_end: int | None, side: Side) -> LinePlace:
        """Anchored if the diff shows both ends of the range on that side."""
        end = line_end if line_end is not None else line_start
        nowhere = LinePlace(path, line_start, end, side, Anchor.UNANCHORED, None)
        if path is None or line_start is None or end is None or end < line_start:
            return nowhere
        for file in self._files:
            if path not in {file.new_path, file.old_path}:
                continue
            shown = dict(self._shown(file, side))
            if line_start in shown and end in shown:
                text = "\n".join(shown[number] for number in range(line_start, end + 1) if number in shown)
                return LinePlace(path, line_start, end, side, Anchor.ANCHORED, text)
        return nowhere

    def find_again(self, place: LinePlace) -> LinePlace:
        """Find the same text in this diff: in its file, under the file's new name, or moved to another file.

        A place that is not found again is kept and marked outdated. A remark that never had a place stays without.
        """
        if place.text is None:
            return place
        wanted = place.text.split("\n")
        near = place.line_start or 1
        own = [file for file in self._files if place.path in {file.new_path, file.old_path}]
        match = self._nearest(own, wanted, place.side, near)
        if match is None and len(place.text.strip()) >= _TELLING_CHARACTERS:
            others = [file for file in self._files if file not in own]
            match = self._nearest(others, wanted, place.side, near)
        if match is None:
            return LinePlace(place.path, place.line_start, place.line_end, place.side, Anchor.OUTDATED, place.text)
        path, start, end = match
        return LinePlace(path, start, end, place.side, Anchor.ANCHORED, place.text)

    def _nearest(self, files: list[FilePatch], wanted: list[str], side: Side, near: int) -> tuple[str, int, int] | None:
        best: tuple[str, int, int] | None = None
        for file in files:
            shown = self._shown(file, side)
            texts = [text for _, text in shown]
            for index in _occurrences(texts, wanted):
                start, end = shown[index][0], shown[index + len(wanted) - 1][0]
                if best is None or abs(start - near) < abs(best[1] - near):
                    best = file.path, start, end
        return best


def _occurrences(texts: list[str], wanted: list[str]) -> list[int]:
    size = len(wanted)
    return [
        index
        for index in range(len(texts) - size + 1)
        if texts[index] == wanted[0] and texts[index : index + size] == wanted
    ]
