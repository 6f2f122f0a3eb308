"""Coverage is measured only while those tests run that exercise the rules and the store from close by.

Tracing takes a third of a test's time again, and a test of a whole broker proves nothing about single lines.
"""

import sys

from coverage import Coverage

_PACKAGES = ("gsd_review_broker.domain.rules", "gsd_review_broker.store")
_ON_POSTGRES = ("[postgres", "/test_postgres.py", "/test_several_brokers.py", "/test_copying.py")
# They try many inputs, of which the store and the rules see few.
_WITH_MANY_INPUTS = ("/test_bad_input.py", "/test_hostile_diffs.py")
MEASURED = (
    *("tests/unit/domain/rules/", "tests/unit/domain/test_", "tests/unit/store/"),
    *("tests/integration/service/", "tests/integration/store/", "tests/integration/web/test_sign_in.py"),
)
_UNMEASURED = (*_ON_POSTGRES, *_WITH_MANY_INPUTS)


class Measuring:
    """Switched only where it has to change: coverage looks at every imported module when it starts."""

    def __init__(self) -> None:
        # Kept here, because a measurement that is stopped is no longer the current one.
        self._measurement = Coverage.current()
        self._on = True

    def switch(self, node_id: str) -> None:
        wanted = node_id.startswith(MEASURED) and not any(part in node_id for part in _UNMEASURED)
        if self._measurement is None or wanted == self._on:
            return
        self._on = wanted
        if wanted:
            self._measurement.start()
            _forget_results()
        else:
            self._measurement.stop()


def _forget_results() -> None:
    """What a test that is not measured made and kept, a measured one makes again."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_PACKAGES):
            for kept in vars(module).values():
                if hasattr(kept, "cache_clear"):
                    kept.cache_clear()
