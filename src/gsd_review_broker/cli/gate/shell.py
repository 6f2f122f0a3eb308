"""The programs that a line of shell would run, as far as they can be told without running it.

It is for an early warning, so it reads what agents write: lists, pipes, subshells, substitutions, `bash -c`, here
documents. What it cannot tell is marked, and never guessed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Stands in a word for what only the shell knows: a variable, or the output of a program.
UNKNOWN = "\0"
GIT = "git"
_OPERATORS = ("&&", "||", ";;", "|&", ";", "|", "&", "\n", "(", ")")
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh"})
_KEYWORDS = frozenset({"{", "}", "!", "if", "then", "else", "elif", "fi", "while", "until", "do", "done", "time"})
_HERE_DOCUMENT = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1([^\n]*)\n(?:[^\n]*\n)*?[ \t]*\2(?=\n|$)")
_VARIABLE = re.compile(r"\$(\w+|\{[^}]*\}|[@*#?$!-])")
_DEEPEST = 20


@dataclass(frozen=True, slots=True)
class Call:
    """One program with its words, and the folder that it starts in; None if that cannot be told."""

    words: tuple[str, ...]
    folder: Path | None


class _Operator(str):
    __slots__ = ()


def calls_in(text: str, folder: Path | None, depth: int = 0) -> list[Call]:
    """Raises ValueError for text that ends inside a quote or a substitution."""
    if depth > _DEEPEST:
        raise ValueError("the command is nested too deeply")
    calls: list[Call] = []
    outer: list[Path | None] = []
    words: list[str] = []
    reader = _Reader(_HERE_DOCUMENT.sub(r"<<\2\3", text))
    for part in (*reader.parts(), _Operator("\n")):
        for inner in reader.take_nested():
            calls += calls_in(inner, folder, depth + 1)
        if not isinstance(part, _Operator):
            words += [part] if words or part not in _KEYWORDS else []
            continue
        calls += _expanded(words, folder, depth)
        folder = _folder_after(words, folder)
        words = []
        if part == "(":
            outer.append(folder)
        elif part == ")" and outer:
            folder = outer.pop()
    return calls


def _expanded(words: list[str], folder: Path | None, depth: int) -> list[Call]:
    """The call itself, or those in the text that a shell is given."""
    if not words:
        return []
    if words[0] == "eval":
        return calls_in(" ".join(words[1:]), folder, depth + 1)
    if Path(words[0]).name in _SHELLS:
        given = [at for at, word in enumerate(words) if re.fullmatch(r"-\w*c", word)]
        if given and given[0] + 1 < len(words):
            return calls_in(words[given[0] + 1], folder, depth + 1)
    return [Call(tuple(words), folder)]


def _folder_after(words: list[str], folder: Path | None) -> Path | None:
    if not words or words[0] not in {"cd", "pushd"}:
        return folder
    return below(folder, words[1] if len(words) > 1 else "~")


def below(folder: Path | None, name: str) -> Path | None:
    if folder is None or UNKNOWN in name or name == "-":
        return None
    try:
        return folder / Path(name).expanduser()
    except RuntimeError:
        return None


class _Reader:
    """Splits text into words and operators. Texts of substitutions are put aside."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._nested: list[str] = []

    def take_nested(self) -> list[str]:
        nested, self._nested = self._nested, []
        return nested

    def parts(self) -> Iterator[str]:
        is_file = False
        while self._at < len(self._text):
            character = self._text[self._at]
            if character in " \t\r" or self._text.startswith("\\\n", self._at):
                self._at += 1 if character != "\\" else 2
            elif character == "#":
                self._at = self._until("\n")
            elif character in "<>" or self._text.startswith("&>", self._at):
                is_file = self._redirection()
            elif operator := next((sign for sign in _OPERATORS if self._text.startswith(sign, self._at)), None):
                self._at += len(operator)
                is_file = False
                yield _Operator(operator)
            else:
                word = self._word()
                if not is_file and not (word.isdigit() and self._text[self._at : self._at + 1] in {"<", ">"}):
                    yield word
                is_file = False

    def _redirection(self) -> bool:
        while self._at < len(self._text) and self._text[self._at] in "<>&|":
            self._at += 1
        return True

    def _until(self, sign: str) -> int:
        end = self._text.find(sign, self._at)
        return len(self._text) if end < 0 else end

    def _word(self) -> str:
        word = ""
        while self._at < len(self._text) and self._text[self._at] not in " \t\r\n;&|()<>":
            character = self._text[self._at]
            if character == "'":
                word += self._quoted()
            elif character == '"':
                self._at += 1
                word += self._double_quoted()
            else:
                word += self._plain()
        return word

    def _quoted(self) -> str:
        end = self._text.index("'", self._at + 1)
        text = self._text[self._at + 1 : end]
        self._at = end + 1
        return text

    def _double_quoted(self) -> str:
        word = ""
        while self._text[self._at : self._at + 1] != '"':
            if self._at >= len(self._text):
                raise ValueError("the text ends inside a quote")
            word += self._plain()
        self._at += 1
        return word

    def _plain(self) -> str:
        """The next character, or what stands for it."""
        character = self._text[self._at]
        if character == "\\":
            escaped = self._text[self._at + 1 : self._at + 2]
            self._at += 2
            return "" if escaped == "\n" else escaped
        if self._text.startswith("$(", self._at):
            self._nested.append(self._inside())
            return UNKNOWN
        if character == "`":
            end = self._text.index("`", self._at + 1)
            self._nested.append(self._text[self._at + 1 : end])
            self._at = end + 1
            return UNKNOWN
        if variable := _VARIABLE.match(self._text, self._at):
            self._at = variable.end()
            return UNKNOWN
        self._at += 1
        return character

    def _inside(self) -> str:
        """The text of `$(…)`, found by reading it as shell."""
        start = self._at = self._at + 2
        inner = _Reader(self._text)
        inner._at = start
        depth = 0
        for part in inner.parts():
            depth += (part == "(") - (part == ")") if isinstance(part, _Operator) else 0
            if depth < 0:
                self._at = inner._at
                return self._text[start : self._at - 1]
        raise ValueError("the text ends inside a substitution")
