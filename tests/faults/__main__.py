"""`make faults`: puts each fault in, one at a time, and demands that every test that it names fails.

Works on a copy of the tree, so that nothing here is ever changed. Arguments are words of the faults' names; without
any, all are tried. First the named tests have to pass on the copy as it is.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.faults.fault import Fault
from tests.faults.table import FAULTS

ROOT = Path(__file__).parents[2]
PACKAGE = "src/gsd_review_broker"
_COPIED = ("src", "tests", "benchmarks", "docs", "pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".hypothesis", "*.egg-info")
# One interpreter for each fault: a module that is loaded already would be judged as it was.
_RUN = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
_LONGEST_SECONDS = 300
_LONGEST_BEFORE = 1_800


def main(words: list[str]) -> int:
    faults = [fault for fault in FAULTS if all(word in fault.name for word in words)]
    with tempfile.TemporaryDirectory(prefix="tandem-faults-") as folder:
        tree = _copy(Path(folder))
        code, output = _run(tree, sorted({test for fault in faults for test in fault.tests}), _LONGEST_BEFORE)
        if code != pytest.ExitCode.OK:
            print(f"{output}\nThe tests do not pass as the tree is; no fault was tried.")
            return 1
        missed = [fault for fault in faults if not _is_caught(tree, fault)]
    print(f"{len(faults) - len(missed)} of {len(faults)} faults were caught")
    return 1 if missed else 0


def _copy(folder: Path) -> Path:
    for name in _COPIED:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=_LEFT_OUT)
        else:
            shutil.copy2(source, target)
    return folder


def _is_caught(tree: Path, fault: Fault) -> bool:
    whole = {file: (tree / PACKAGE / file).read_text(encoding="utf-8") for file in fault.edits_by_file}
    for file, text in faulty(fault, whole).items():
        (tree / PACKAGE / file).write_text(text, encoding="utf-8")
    began = time.monotonic()
    try:
        code, output = _run(tree, fault.tests)
    finally:
        for file, text in whole.items():
            (tree / PACKAGE / file).write_text(text, encoding="utf-8")
    failed = {line.split()[1].partition("[")[0] for line in output.splitlines() if line.startswith("FAILED ")}
    # Anything but a failed test, an error while tests are collected included, proves nothing.
    passed = [test for test in fault.tests if test not in failed]
    caught = code == pytest.ExitCode.TESTS_FAILED and not passed
    print(f"{'caught' if caught else 'MISSED'}  {fault.name}  ({time.monotonic() - began:.1f} s)", flush=True)
    if not caught:
        print(output, *(f"did not fail: {test}" for test in passed), sep="\n")
    return caught


def faulty(fault: Fault, texts: Mapping[str, str]) -> dict[str, str]:
    """The texts of the files with the fault in them."""
    changed = dict(texts)
    for file, edits in fault.edits_by_file.items():
        for old, new in edits:
            changed[file] = changed[file].replace(old, new, 1)
    return changed


def _run(tree: Path, tests: Iterable[str], longest: int = _LONGEST_SECONDS) -> tuple[int, str]:
    # The copy's source comes before the installed package, in the programs that tests start too.
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    arguments = [
        "-q",
        "-rf",
        "--tb=short",
        "-o",
        "addopts=",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "--timeout=60",
        *tests,
    ]
    try:
        done = subprocess.run(
            [sys.executable, "-c", _RUN, *arguments],
            cwd=tree, env=environment, capture_output=True, text=True, timeout=longest, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        return pytest.ExitCode.INTERRUPTED, f"not over after {error.timeout:.0f} s"
    return done.returncode, done.stdout[-12_000:] + done.stderr[-2_000:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
