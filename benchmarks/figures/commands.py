"""The start of a short command, over the start of a Python that can speak HTTP: the least that a client costs."""

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.processes import free_environment

from benchmarks.measuring import Samples
from benchmarks.report import Figure, ratio
from benchmarks.stage import Stage

_BAR = 1.5
_YARDSTICK = "import http.client, json"
_PROGRAM = str(Path(sys.executable).parent / "tandem")
# As the hook's script starts it; a transaction that touches no branch is decided without a broker.
_HOOK = "import sys; sys.path.insert(0, {package!r}); from gsd_review_broker.gate.hook import main"
_PACKAGE = str(Path(__file__).parents[2] / "src")


def commands(stage: Stage) -> list[Figure]:
    """Wall time, and time of the processor: the second does not suffer from other programs."""
    assert stage.port
    environment = free_environment(stage.broker.home)
    wall: dict[str, Samples] = {}
    processor: dict[str, Samples] = {}
    programs = {
        "python": [sys.executable, "-c", _YARDSTICK],
        "tandem status": [_PROGRAM, "status"],
        "tandem list": [_PROGRAM, "list", "--limit", "20"],
        "hook": [sys.executable, "-I", "-S", "-c", _HOOK.format(package=_PACKAGE)],
    }
    for number in range(6 if stage.quick else 25):
        for name, command in programs.items():
            used = _processor_seconds()
            samples = wall.setdefault(name, Samples())
            samples.time(_run(command, stage.broker.folder, environment))
            processor.setdefault(name, Samples()).seconds.append(_processor_seconds() - used)
            if number == 0:
                # The first run may have to compile.
                wall.pop(name)
                processor.pop(name)
    return [
        ratio(f"commands: {name}, {kind}", samples[name].p50, samples["python"].p50, _BAR, f"python -c {_YARDSTICK!r}")
        for name in programs
        if name != "python"
        for kind, samples in (("wall time", wall), ("processor", processor))
    ]


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> Callable[[], object]:
    return lambda: subprocess.run(
        command,
        cwd=folder,
        env=environment,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
