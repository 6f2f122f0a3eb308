"""The table of faults (`make faults`) fits the code: a fault that no longer applies would prove nothing."""

import ast
from pathlib import Path

import pytest

from tests.faults.__main__ import PACKAGE, ROOT, faulty
from tests.faults.table import FAULTS, Fault

SOURCE = ROOT / PACKAGE


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault_still_has_its_place_in_the_code(fault: Fault) -> None:
    text = (SOURCE / fault.file).read_text(encoding="utf-8")
    assert [text.count(old) for old, _ in fault.edits] == [1] * len(fault.edits)
    # It changes something, and what it gives is still a program.
    assert faulty(fault, text) != text
    ast.parse(faulty(fault, text))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault_names_tests_that_there_are(fault: Fault) -> None:
    assert fault.tests
    for test in fault.tests:
        file, _, name = test.partition("::")
        names = {node.name for node in ast.walk(ast.parse(Path(ROOT / file).read_text(encoding="utf-8")))
                 if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}  # fmt: skip
        assert name in names


def test_every_fault_has_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
