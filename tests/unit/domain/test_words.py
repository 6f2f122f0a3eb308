"""Each list of words is written once: what shows, checks or offers them takes it from `domain/words.py`."""

import ast
import enum
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import gsd_review_broker
from gsd_review_broker import LOOPBACK
from gsd_review_broker.domain import words
from gsd_review_broker.domain.words import either, values

SOURCE = Path(gsd_review_broker.__file__).parent
ENUMS = {
    name: kind
    for name, kind in vars(words).items()
    if isinstance(kind, enum.EnumType) and kind.__module__ == words.__name__
}
# Two words may stand together for another reason.
LISTS = {name: set(values(kind)) for name, kind in ENUMS.items() if len(kind) > 2} | {
    "AGENTS": set(words.AGENTS),
    "CLIENTS": set(words.CLIENTS),
    "LOOPBACK": set(LOOPBACK),
    "RESOLUTIONS": set(values(words.RESOLUTIONS)),
}
HOMES = {"domain/words.py", "__init__.py"}
# Where all words of a list stand, and why that is no second list.
ALLOWED = {
    ("service/wire/statistics.py", "Verdict"): "a row, whose type names every field",
    ("cli/describe.py", "Status"): "a colour for each",
    ("web/templates/base.html", "Verdict"): "a sentence for each",
    ("integrations/assets/skills/tandem-proposing/SKILL.md", "RESOLUTIONS"): "when to choose which",
}


def strings(expressions: list[ast.expr | None]) -> set[str]:
    return {one.value for one in expressions if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def lists_in_python(text: str) -> Iterator[set[str]]:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                yield strings([*parts])
            case ast.Dict(keys=keys):
                yield strings(keys)
            case _:
                pass


def lists_in(file: Path) -> Iterator[set[str]]:
    text = file.read_text("utf-8")
    if file.suffix == ".py":
        yield from lists_in_python(text)
        return
    for inside in re.findall(r"\[([^\[\]]*)\]|\{([^{}]*)\}|\(([^()]*)\)", text):
        yield set(re.findall(r"\b[a-z_0-9]+\b", " ".join(inside)))


def test_no_other_module_template_script_or_prompt_has_a_list_of_these_words() -> None:
    kinds = ("*.py", "*.html", "*.js", "*.md")
    files = [file for kind in kinds for file in SOURCE.rglob(kind) if "migrations" not in file.parts]
    copies = {
        (where, name)
        for file in files
        if (where := file.relative_to(SOURCE).as_posix()) not in HOMES
        for found in lists_in(file)
        for name, all_of_it in LISTS.items()
        if all_of_it <= found
    }
    assert copies - set(ALLOWED) == set(), "take it from domain/words.py, or say in ALLOWED why it is no copy"
    assert set(ALLOWED) - copies == set(), "it is gone: take it out of ALLOWED"


@pytest.mark.parametrize(
    "text",
    ['x = ["critical", "high", "medium", "low"]', 'x = {"low": 1, "high": 2, "critical": 3, "medium": 4}',
     'x: Literal["critical", "high", "medium", "low", "P0"]'],
)  # fmt: skip
def test_the_look_itself_would_notice(text: str) -> None:
    assert any(LISTS["Severity"] <= found for found in lists_in_python(text))


def test_the_words_are_imported_from_their_own_module() -> None:
    elsewhere = [
        f"{file.relative_to(SOURCE)}:{node.lineno} {alias.name}"
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module != words.__name__
        if (node.module or "").startswith(f"{SOURCE.name}.domain")
        for alias in node.names
        if alias.name in ENUMS
    ]
    assert elsewhere == []


def test_importing_the_words_needs_nothing_but_enum() -> None:
    imported = [
        node for node in ast.walk(ast.parse(Path(words.__file__).read_text("utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]  # fmt: skip
    assert [node.module for node in imported if isinstance(node, ast.ImportFrom)] == ["enum"]
    assert len(imported) == 1


def test_a_sentence_names_the_words_as_people_do() -> None:
    assert either(tuple(words.Severity)) == "critical, high, medium or low"
    assert either(LOOPBACK, joined="and") == "127.0.0.1, localhost and ::1"
    assert either(words.GRAVE) == "critical or high"
    assert either(("one",)) == "one"
