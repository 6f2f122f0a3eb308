"""`make faults`: puts each fault in, one at a time, and demands that a named test fails.

Works on a copy of the tree, so that nothing here is ever changed. Arguments are words of the faults' names; without
any, all are tried. First the named tests have to pass on the copy as it is.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.faults.table import FAULTS, Fault

ROOT = Path(__file__).parents[2]
PACKAGE = "src/gsd_review_broker"
_COPIED = ("src", "tests", "docs", "pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".hypothesis", "*.egg-info")
# One interpreter for each fault: a module that is loaded already would be judged as it was.
_RUN = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
_LONGEST_SECONDS = 300


def main(words: list[str]) -> int:
    faults = [fault for fault in FAULTS if all(word in fault.name for word in words)]
    with tempfile.TemporaryDirectory(prefix="tandem-faults-") as folder:
        tree = _copy(Path(folder))
        code, said = _run(tree, sorted({test for fault in faults for test in fault.tests}))
        if code != pytest.ExitCode.OK:
            print(f"{said}\nThe tests do not pass as the tree is; no fault was tried.")
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
    path = tree / PACKAGE / fault.file
    whole = path.read_text(encoding="utf-8")
    path.write_text(faulty(fault, whole), encoding="utf-8")
    began = time.monotonic()
    try:
        code, said = _run(tree, fault.tests)
    finally:
        path.write_text(whole, encoding="utf-8")
    caught = code == pytest.ExitCode.TESTS_FAILED
    print(f"{'caught' if caught else 'MISSED'}  {fault.name}  ({time.monotonic() - began:.1f} s)", flush=True)
    if not caught:
        # Anything but a failed test, an error while tests are collected included, proves nothing.
        print(said)
    return caught


def faulty(fault: Fault, text: str) -> str:
    for old, new in fault.edits:
        text = text.replace(old, new, 1)
    return text


def _run(tree: Path, tests: Iterable[str]) -> tuple[int, str]:
    # The copy's source comes before the installed package, in the programs that tests start too.
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    arguments = ["-q", "-x", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:randomly", "--timeout=60", *tests]
    try:
        done = subprocess.run(
            [sys.executable, "-c", _RUN, *arguments],
            cwd=tree, env=environment, capture_output=True, text=True, timeout=_LONGEST_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        return pytest.ExitCode.INTERRUPTED, f"not over after {error.timeout:.0f} s"
    return done.returncode, done.stdout[-4_000:] + done.stderr[-2_000:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
