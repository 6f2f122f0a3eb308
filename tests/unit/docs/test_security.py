"""docs/security.md has a row for each finding of the security review, and each row names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
PAGE = (TESTS.parent / "docs" / "security.md").read_text("utf-8")
NAMED = re.findall(r"`([a-z0-9_/]+\.py)::(test_\w+)`", PAGE)
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "| threat |" not in line]
FINDINGS = {"C1", *(f"H{n}" for n in range(1, 10)), *(f"M{n}" for n in range(1, 4)), *(f"L{n}" for n in range(1, 11))}


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED)))
def test_each_named_test_exists(file: str, name: str) -> None:
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in functions


def test_every_row_names_a_test_and_nothing_else_in_its_last_column() -> None:
    assert ROWS
    for row in ROWS:
        tests = row.strip("| ").split(" | ")[-1].split(", ")
        assert all(re.fullmatch(r"`[a-z0-9_/]+\.py::test_\w+`", test) for test in tests), row


def test_every_finding_has_a_row() -> None:
    assert {row.split("|")[1].strip() for row in ROWS} - {""} == FINDINGS
