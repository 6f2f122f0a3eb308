"""Which tests share a worker, and which start first, where tests run in parallel.

The tests of one group run one after the other in one worker, while other groups run beside them. A group is a module,
because a module's tests share a broker or a corpus that would otherwise be made once for each worker."""

from xdist.scheduler import LoadScopeScheduling

# Each of these folders is one group: there is one Chromium, and the programs of two pools would slow each other down.
GROUPS = ("tests/browser/", "tests/acceptance/pool/")
# Slow tests start first, so that no worker is left with one at the end.
ORDER = (*GROUPS, "tests/acceptance/", "tests/integration/", "tests/unit/", "tests/")


def group_of(node_id: str) -> str:
    module = node_id.partition("::")[0]
    return next((group for group in GROUPS if module.startswith(group)), module)


def turn_of(node_id: str) -> int:
    return next(turn for turn, folder in enumerate((*ORDER, "")) if node_id.startswith(folder))


class ByGroup(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
