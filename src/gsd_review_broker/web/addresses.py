"""Parses the query of a page's address."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeVar
from urllib.parse import urlencode

from gsd_review_broker.errors import BrokerError, Code

_Word = TypeVar("_Word", bound=StrEnum)
_MOST_DIGITS = 12
_LINE_NAME = re.compile(r"f(\d{1,6})([on])(\d{1,9})")
EVERYTHING = "all"
RENDERED, DIFF = FORMS = "rendered", "diff"


def digits(text: str, *, most: int = _MOST_DIGITS) -> int | None:
    """Return the whole number that plain digits name; None for everything else, and for too many digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= most else None


def number(values: Mapping[str, str], name: str, *, hint: str = "Follow the page's links.") -> int | None:
    value = values.get(name, "").strip()
    if not value:
        return None
    result = digits(value)
    if result is None:
        raise BrokerError(Code.INVALID_ARGUMENT, f"{name}: {value[:40]!r} is not a number", hint)
    return result


def choice(values: Mapping[str, str], name: str, kind: type[_Word]) -> _Word | None:
    """Return the word that the value names; None for a blank value."""
    value = values.get(name, "").strip()
    try:
        return kind(value) if value else None
    except ValueError as error:
        *words, last = kind
        known = f"{', '.join(words)} or {last}"
        raise BrokerError(
            Code.INVALID_ARGUMENT, f"{name}: choose {known}", "Use the page's lists and buttons."
        ) from error


def with_query(path: str, values: Mapping[str, object]) -> str:
    """Leave out values that are not set: the shortest address is the one to share."""
    fields = {name: value for name, value in values.items() if value is not None and value is not False and value != ""}
    return f"{path}?{urlencode({n: 1 if v is True else v for n, v in fields.items()})}" if fields else path


class LineName(NamedTuple):
    """The name of a line on a page, as in `f3n120`: line 120 on the new side of the fourth file."""

    file: int
    # "o" or "n".
    side: str
    number: int

    @classmethod
    def of(cls, text: str) -> "LineName | None":
        match = _LINE_NAME.fullmatch(text)
        return cls(int(match[1]), match[2], int(match[3])) if match else None

    def __str__(self) -> str:
        return f"f{self.file}{self.side}{self.number}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReviewAddress:
    """Which content of a review is shown, and in which form."""

    review_id: str
    revision: int | None = None
    since: int | None = None
    patch: int | None = None
    whole: bool = False
    split: bool = False
    ignore_space: bool = False
    file: int | None = None
    # Of a large file. None: the part that contains `at`, or the first.
    part: int | None = None
    first_file: int = 0
    at: str = ""
    # Lines of the base around each hunk of the one file: a number, or "all". Empty: only what the diff shows.
    around: str = ""
    # Markdown files: "rendered" or "diff". Empty: what suits the review.
    form: str = ""
    is_plan: bool = False

    def link(self, **changes: object) -> str:
        return with_query(f"/r/{self.review_id}", {**self._content, **changes})

    @property
    def _content(self) -> dict[str, object]:
        return {
            "rev": self.revision,
            "since": self.since,
            "patch": self.patch,
            "whole": self.whole,
            "w": self.ignore_space,
            "as": self.form,
        }

    @property
    def query(self) -> str:
        """Return the query that leads to the same content again."""
        return self.link().partition("?")[1] + self.link().partition("?")[2]

    def file_link(self, index: int, part: int | None = None) -> str:
        return self.link(file=index, part=part, around=self.around) + f"#f{index}"

    def source_of(self, index: int, part: int | None = None) -> str:
        place = {"i": str(index), "part": part, "around": self.around}
        view = "split" if self.split else "unified"
        return with_query(f"/r/{self.review_id}/file", {**place, **self._content, "view": view})


def review_asked(review_id: str, query: Mapping[str, str], cookies: Mapping[str, str]) -> ReviewAddress:
    return ReviewAddress(
        review_id=review_id,
        # Either name, as people write it by hand. Ignoring an unknown name would show content that was not asked for.
        revision=number(query, "rev" if query.get("rev") else "revision"),
        since=number(query, "since"),
        patch=number(query, "patch"),
        whole=query.get("whole") == "1",
        split=(query.get("view") or cookies.get("view")) == "split",
        ignore_space=query.get("w") == "1",
        file=number(query, "file"),
        part=number(query, "part"),
        first_file=number(query, "from") or 0,
        at=query.get("at", "")[:40],
        around=_around(query),
        form=query.get("as", "") if query.get("as") in FORMS else "",
    )


def _around(query: Mapping[str, str]) -> str:
    if query.get("around") == EVERYTHING:
        return EVERYTHING
    lines = number(query, "around")
    return "" if lines is None else str(lines)
