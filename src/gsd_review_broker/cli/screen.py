"""Output for the person. Every text passes through here, so that none reaches a terminal unescaped."""

import contextlib
import json
import os
import sys
from collections.abc import Generator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from gsd_review_broker.domain.text import with_hidden_shown

if TYPE_CHECKING:
    import threading


def visible(text: str) -> str:
    """Replace each control, format or invisible character by its escape."""
    return with_hidden_shown(text, _escape)


def visible_block(text: str) -> str:
    """Do the same for text of several lines: line feeds and tabs stay."""
    return with_hidden_shown(text, _escape, is_block=True)


def _escape(character: str) -> str:
    match character:
        case "\n":
            return "\\n"
        case "\r":
            return "\\r"
        case "\t":
            return "\\t"
        case _:
            number = ord(character)
            if number < 0x100:  # noqa: PLR2004 - two hexadecimal digits
                return f"\\x{number:02x}"
            return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"  # noqa: PLR2004 - what four digits hold


_PROGRESS_SECONDS = 1.0


class Style(StrEnum):
    PLAIN = ""
    BOLD = "1"
    DIM = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    BLUE = "34"
    MAGENTA = "35"
    CYAN = "36"


class Span(NamedTuple):
    text: str
    style: Style = Style.PLAIN


Part = str | Span
Row = Sequence[Part]


class Screen:
    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self.is_terminal = self._out.isatty()
        self.has_colour = _has_colour(terminal=self.is_terminal)

    @property
    def width(self) -> int:
        import shutil

        return shutil.get_terminal_size().columns

    def say(self, *parts: Part) -> None:
        """Write one line."""
        self._out.write("".join(self.painted(part) for part in parts) + "\n")

    def block(self, text: str, *, indent: str = "") -> None:
        """Write a text of several lines."""
        for line in visible_block(text).split("\n"):
            self._out.write(f"{indent}{line}".rstrip() + "\n")

    def table(self, header: Sequence[str], rows: Sequence[Row], *, least: int = 0) -> None:
        """Aligned on a terminal, the last column cut at its edge; tab-separated and complete in a pipe.

        On a narrow terminal, columns before the last are left out until it has at least `least` cells."""
        if not self.is_terminal:
            for row in rows:
                self._out.write("\t".join(plain(part) for part in row) + "\n")
            return
        for line in self.table_lines(header, rows, least=least):
            self._out.write(line + "\n")

    def table_lines(self, header: Sequence[str], rows: Sequence[Row], *, least: int = 0) -> list[str]:
        titles = [Span(title, Style.DIM) for title in header]
        everything: list[Row] = [titles, *rows]
        widths = [max(cells(plain(row[at])) for row in everything) for at in range(len(header))]
        while len(widths) > 2 and sum(widths[:-1]) + 2 * len(widths[:-1]) + min(least, widths[-1]) > self.width:  # noqa: PLR2004 - the first and the last stay
            del widths[-2]
            everything = [[*row[:-2], row[-1]] for row in everything]
        return [self._aligned(row, widths) for row in everything]

    def _aligned(self, row: Row, widths: list[int]) -> str:
        parts: list[Part] = []
        for part, width in zip(row[:-1], widths, strict=False):
            parts += [part, " " * (width - cells(plain(part)) + 2)]
        return self.clipped([*parts, row[-1]]).rstrip()

    def clipped(self, parts: Row) -> str:
        """Return one line, cut at the terminal's edge before it is painted."""
        room = self.width
        shown: list[str] = []
        for part in parts:
            text = cut(plain(part), room)
            shown.append(self.painted(Span(text, part.style if isinstance(part, Span) else Style.PLAIN)))
            room -= cells(text)
            if room <= 0:
                break
        return "".join(shown)

    def painted(self, part: Part, *, is_block: bool = False) -> str:
        text = plain(part, is_block=is_block)
        style = part.style if isinstance(part, Span) else Style.PLAIN
        return f"\x1b[{style.value}m{text}\x1b[0m" if self.has_colour and style and text else text

    def json(self, value: Any) -> None:
        """Print JSON in ASCII: every reader accepts it, and it cannot affect a terminal."""
        print(json.dumps(value, indent=2 if self.is_terminal else None), file=self._out)

    def warn(self, *parts: Part) -> None:
        self._err.write("".join(plain(part) for part in parts) + "\n")

    def write(self, text: str) -> None:
        """Write our own text and control sequences, unescaped."""
        self._out.write(text)
        self._out.flush()

    @contextlib.contextmanager
    def progress(self, doing: str) -> Generator[None]:
        """Show on a terminal's standard error what takes so long; remove the line afterwards."""
        if not self._err.isatty():
            yield
            return
        import threading

        done = threading.Event()
        teller = threading.Thread(target=self._tell_progress, args=(visible(doing), done), daemon=True)
        teller.start()
        try:
            yield
        finally:
            done.set()
            teller.join()

    def _tell_progress(self, doing: str, done: "threading.Event") -> None:
        seconds = 0
        while not done.wait(_PROGRESS_SECONDS):
            seconds += 1
            self._err.write(f"\r\x1b[K{doing}… {seconds} s")
            self._err.flush()
        if seconds:
            self._err.write("\r\x1b[K")
            self._err.flush()


def cells(text: str) -> int:
    """Return the number of terminal columns that a text takes."""
    if text.isascii():
        return len(text)
    import unicodedata

    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    combining = sum(unicodedata.combining(c) != 0 for c in text)
    return len(text) + wide - combining


def cut(text: str, width: int) -> str:
    if cells(text) <= width:
        return text
    while text and cells(text) > width - 1:
        text = text[:-1]
    return text + "…"


def plain(part: Part, *, is_block: bool = False) -> str:
    text = part.text if isinstance(part, Span) else part
    return visible_block(text) if is_block else visible(text)


def _has_colour(*, terminal: bool) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return terminal and os.environ.get("TERM") != "dumb"
