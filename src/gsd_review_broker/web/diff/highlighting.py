"""Colours for code, by Pygments: in a thread, within a time limit, and plain text for anything too large."""

import importlib
import time
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from pathlib import PurePosixPath
from typing import Any

from gsd_review_broker.web.diff.document import Row, ShownHunk

# (class, text): the pieces of one line.
Pieces = tuple[tuple[str, str], ...]

LARGEST_CHARACTERS = 200_000
# A lexer's expression can be slow on a generated line.
_LONGEST_LINE = 2_000
_SECONDS = 1.0
# Well-known languages only: their lexers are well tested.
_LEXERS = {
    "python": "py pyi pyw", "javascript": "js mjs cjs jsx", "typescript": "ts mts cts tsx", "json": "json jsonc",
    "yaml": "yml yaml", "toml": "toml", "ini": "ini cfg conf", "html": "html htm jinja j2", "css": "css",
    "scss": "scss", "bash": "sh bash zsh", "go": "go", "rust": "rs", "c": "c h", "cpp": "cc cpp cxx hpp hh",
    "java": "java", "kotlin": "kt kts", "swift": "swift", "ruby": "rb", "php": "php", "csharp": "cs", "lua": "lua",
    "sql": "sql", "xml": "xml svg", "markdown": "md markdown", "rst": "rst", "make": "mk", "docker": "dockerfile",
    "elixir": "ex exs", "haskell": "hs", "scala": "scala", "perl": "pl pm", "r": "r", "dart": "dart", "zig": "zig",
    "diff": "diff patch", "protobuf": "proto", "terraform": "tf", "powershell": "ps1",
}  # fmt: skip
_BY_EXTENSION = {extension: name for name, extensions in _LEXERS.items() for extension in extensions.split()}
_BY_NAME = {"makefile": "make", "dockerfile": "docker", ".bashrc": "bash", "gemfile": "ruby", "rakefile": "ruby"}


def highlighted(path: str, hunks: Sequence[ShownHunk]) -> list[list[Pieces]]:
    """Return the pieces of each row of each hunk."""
    lexer = _lexer_for(path) if _is_small(hunks) else None
    deadline = time.monotonic() + _SECONDS
    return [_of_hunk(lexer, hunk, deadline) for hunk in hunks]


def _is_small(hunks: Sequence[ShownHunk]) -> bool:
    lengths = [len(row.text) for hunk in hunks for row in hunk.rows]
    return sum(lengths) <= LARGEST_CHARACTERS and max(lengths, default=0) <= _LONGEST_LINE


def _lexer_for(path: str) -> Any:
    name = PurePosixPath(path).name.lower()
    language = _BY_NAME.get(name) or _BY_EXTENSION.get(name.rpartition(".")[2])
    return _lexer(language) if language else None


@cache
def _lexer(language: str) -> Any:
    # Imported with the first diff that is shown, so that the broker starts without it.
    lexers: Any = importlib.import_module("pygments.lexers")
    return lexers.get_lexer_by_name(language)


def _of_hunk(lexer: Any, hunk: ShownHunk, deadline: float) -> list[Pieces]:
    plain: list[Pieces] = [(("", row.text),) for row in hunk.rows]
    if lexer is None:
        return plain
    for side in ("-", "+"):
        # Both sides are lexed with their context. Common lines take their colours from the new side.
        numbered = [(index, row) for index, row in enumerate(hunk.rows) if row.kind in (" ", side)]
        lexed = _lexed(lexer, [row for _, row in numbered], deadline)
        for (index, row), pieces in zip(numbered, lexed, strict=False):
            # A lexer may lose or change a character; the page shows the original text.
            if "".join(text for _, text in pieces) == row.text:
                plain[index] = pieces
    return plain


def _lexed(lexer: Any, rows: Sequence[Row], deadline: float) -> Iterator[Pieces]:
    """Yield the pieces line by line; stop early when the time is over."""
    text = "\n".join(row.text for row in rows) + "\n"
    pieces: list[tuple[str, str]] = []
    # A lexer may treat a carriage return as the end of a line. The replacement keeps the offsets.
    for start, kind, value in lexer.get_tokens_unprocessed(text.replace("\r", " ")):
        if time.monotonic() > deadline:
            return
        first, *others = text[start : start + len(value)].split("\n")
        _append(pieces, kind, first)
        for other in others:
            yield tuple(pieces)
            pieces = []
            _append(pieces, kind, other)


def _append(pieces: list[tuple[str, str]], kind: Any, text: str) -> None:
    if text:
        pieces.append((_class_of(kind), text))


@lru_cache(maxsize=256)
def _class_of(kind: Any) -> str:
    """Return one letter for each group that has a colour."""
    from pygments.token import Token  # noqa: PLC0415 - the first diff imports it

    groups = (
        (Token.Comment, "k"), (Token.Keyword, "w"), (Token.Literal.String, "s"), (Token.Literal.Number, "u"),
        (Token.Name.Function, "f"), (Token.Name.Class, "f"), (Token.Name.Decorator, "e"), (Token.Name.Builtin, "b"),
        (Token.Name.Tag, "w"), (Token.Name.Attribute, "f"), (Token.Operator.Word, "w"),
    )  # fmt: skip
    return next((letter for group, letter in groups if kind in group), "")
