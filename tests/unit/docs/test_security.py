"""docs/security.md names a test for each threat; each of them exists."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
PAGE = (TESTS.parent / "docs" / "security.md").read_text("utf-8")
NAMED = re.findall(r"`([a-z_]+/[a-z_/]+\.py)::(test_\w+)`", PAGE)


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED)))
def test_each_named_test_exists(file: str, name: str) -> None:
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in functions
