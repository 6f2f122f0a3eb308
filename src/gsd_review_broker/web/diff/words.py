"""Which words of a changed line changed."""

import re
from difflib import SequenceMatcher

Marks = tuple[tuple[int, int], ...]
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
# Matching is quadratic. A line with more words than this is shown as changed completely.
_MOST_WORDS = 250
# Two lines less alike than this are not versions of each other.
_ALIKE = 0.4


def changed_words(old: str, new: str) -> tuple[Marks, Marks]:
    """The ranges of characters that differ; empty if the lines have too little in common."""
    before, after = _words(old), _words(new)
    if not before or not after:
        return (), ()
    matcher = SequenceMatcher(None, [word for _, word in before], [word for _, word in after], autojunk=False)
    if matcher.ratio() < _ALIKE:
        return (), ()
    olds: list[tuple[int, int]] = []
    news: list[tuple[int, int]] = []
    for tag, a_start, a_end, b_start, b_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        _add(olds, before[a_start:a_end])
        _add(news, after[b_start:b_end])
    return tuple(olds), tuple(news)


def _words(text: str) -> list[tuple[int, str]]:
    words = [(match.start(), match.group()) for match in _WORD.finditer(text)]
    return words if len(words) <= _MOST_WORDS else []


def _add(ranges: list[tuple[int, int]], words: list[tuple[int, str]]) -> None:
    if words:
        last, word = words[-1]
        ranges.append((words[0][0], last + len(word)))
