"""Changes to a text that leave every other byte alone, and that can be undone."""

from collections.abc import Sequence
from dataclasses import dataclass

BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces what stands from start to end with text."""

    start: int
    end: int
    text: str


def applied(text: str, edits: Sequence[Edit]) -> str:
    """Edits are in order and do not overlap; all offsets are those of the text as it was."""
    pieces: list[str] = []
    reached = 0
    for edit in edits:
        pieces += [text[reached : edit.start], edit.text]
        reached = edit.end
    return "".join([*pieces, text[reached:]])


def inverse(text: str, edits: Sequence[Edit]) -> tuple[Edit, ...]:
    """The edits that lead from the changed text back to this one."""
    back: list[Edit] = []
    shift = 0
    for edit in edits:
        start = edit.start + shift
        back.append(Edit(start, start + len(edit.text), text[edit.start : edit.end]))
        shift += len(edit.text) - (edit.end - edit.start)
    return tuple(back)


def newline_of(text: str) -> str:
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def line_and_column(text: str, offset: int) -> str:
    before = text[:offset]
    return f"line {before.count(chr(10)) + 1}, column {offset - before.rfind(chr(10))}"
