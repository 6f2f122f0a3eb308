"""The table of faults (`make faults`) fits the code: a fault that no longer applies would prove nothing."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.faults.__main__ import PACKAGE, ROOT, faulty
from tests.faults.fault import Fault
from tests.faults.security import SECURITY
from tests.faults.table import FAULTS

SOURCE = ROOT / PACKAGE


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault_still_has_its_place_in_the_code(fault: Fault) -> None:
    texts = {file: (SOURCE / file).read_text(encoding="utf-8") for file in fault.edits_by_file}
    for file, edits in fault.edits_by_file.items():
        assert [texts[file].count(old) for old, _ in edits] == [1] * len(edits)
    # It changes every file that it names, and what it gives is still a program.
    for file, text in faulty(fault, texts).items():
        assert text != texts[file]
        ast.parse(text)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault_names_tests_that_there_are(fault: Fault) -> None:
    assert fault.tests
    for test in fault.tests:
        file, _, name = test.partition("::")
        assert name in _functions_of(ROOT / file)


@cache
def _functions_of(file: Path) -> set[str]:
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_tests_that_the_security_page_names_for_a_finding_each_have_a_fault() -> None:
    """So `make faults` shows that each of them fails without its defence."""
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named: dict[str, set[str]] = {}
    for number, row in re.findall(r"^\| ([CHLM]\d+) \|(.*)\|$", page, re.MULTILINE):
        named.setdefault(number, set()).update(f"tests/{test}" for test in re.findall(r"`([\w/]+\.py::\w+)`", row))
    numbers = {f"{kind}{n}" for kind, last in {"C": 1, "H": 9, "M": 3, "L": 10}.items() for n in range(1, last + 1)}
    assert named.keys() == numbers
    for number, tests in named.items():
        faults = [fault for fault in SECURITY if fault.name.startswith(f"security {number}: ")]
        assert {test for fault in faults for test in fault.tests} == tests, number


def test_every_fault_has_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
