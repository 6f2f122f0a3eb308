"""The lines that a diff shows of a file, each with its place on both sides."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from gsd_review_broker.domain.patch.reading import FilePatch
from gsd_review_broker.domain.words import Side


@dataclass(frozen=True, slots=True)
class Line:
    """`kind` is a space, + or -. The number is None on a side that does not have the line."""

    kind: str
    text: str
    old: int | None
    new: int | None
    # Only the last line of a file may be without a line feed.
    is_ended: bool = True

    def number(self, side: Side) -> int | None:
        return self.new if side is Side.NEW else self.old


def lines_of(diff: bytes, file: FilePatch) -> Iterator[Line]:
    for hunk in file.hunks:
        old, new = hunk.old_start, hunk.new_start
        raw_lines = diff[hunk.body : hunk.end].removesuffix(b"\n").split(b"\n")
        for raw, following in zip_longest(raw_lines, raw_lines[1:], fillvalue=b""):
            kind, text = chr(raw[0]) if raw else " ", raw[1:].decode("utf-8", "replace")
            is_ended = not following.startswith(b"\\")
            match kind:
                case "+":
                    yield Line("+", text, None, new, is_ended)
                    new += 1
                case "-":
                    yield Line("-", text, old, None, is_ended)
                    old += 1
                case " ":
                    yield Line(" ", text, old, new, is_ended)
                    old, new = old + 1, new + 1
                case _:
                    # "\ No newline at end of file" is about the line above; it is not a line itself.
                    continue
