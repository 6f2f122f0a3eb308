"""The variables that tests and the programs they start may see.

It lists what is kept, so that no setting of the person who runs the tests (proxies, TMP, EDITOR, GIT_DIR, BROKER_PORT,
CODEX_HOME, NO_COLOR, …) changes a result.
"""

import os
import tempfile
from collections.abc import MutableMapping

KEPT = {
    # Who runs the tests, where programs are found, and where temporary files go.
    *("PATH", "USER", "LOGNAME", "SHELL", "TMPDIR"),
    # How to test: see tests/README.md.
    *("CI", "CHROMIUM", "TANDEM_CLIENTS", "TANDEM_GSD", "KILL_SEED", "RACE_SEED"),
    *("TANDEM_TEST_EXEC", "TANDEM_TEST_PICTURES"),
    # See tests/support/postgres.py.
    *("BROKER_TEST_POSTGRES", "TANDEM_TEST_POSTGRES_FOLDER"),
    # `make faults` uses it to test a copy of the source, also in the programs that tests start.
    "PYTHONPATH",
    # Without these some systems cannot start a program.
    *("SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
}
# pytest and its workers identify themselves with these.
KEPT_PREFIXES = ("PYTEST_",)
GIVEN = {"LANG": "C.UTF-8", "TZ": "UTC"}
# What was left when the tests began; a test may change it for itself.
AT_START: dict[str, str] = {}


# A file system in memory. Thousands of small repositories and databases are made and removed there twice as fast.
_MEMORY = "/dev/shm"
_NEEDED_BYTES = 4 << 30


def clean(variables: MutableMapping[str, str] = os.environ) -> None:
    # The first process passes the measurement of coverage on to its workers; they do not pass it on to brokers.
    prefixes = KEPT_PREFIXES if "PYTEST_XDIST_WORKER" in variables else (*KEPT_PREFIXES, "COVERAGE_")
    for name in list(variables):
        if name not in KEPT and not name.startswith(prefixes):
            del variables[name]
    variables.update(GIVEN)
    if variables is os.environ:
        if "TMPDIR" not in variables and _is_roomy(_MEMORY):
            variables["TMPDIR"] = _MEMORY
            tempfile.tempdir = None  # pytest has asked for it before.
        AT_START.update(variables)


def _is_roomy(folder: str) -> bool:
    """Hooks run from there too, which some containers forbid."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return False
    is_usable = os.access(folder, os.W_OK) and not status.f_flag & os.ST_NOEXEC
    return is_usable and status.f_bavail * status.f_frsize >= _NEEDED_BYTES
