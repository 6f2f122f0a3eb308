"""A broker of ours as a child process: started in the folder that it serves, and awaited until it answers."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from gsd_review_broker.cli.broker import child_python
from gsd_review_broker.client import RunningBroker, Target, find
from gsd_review_broker.settings.state_files import runtime_path

_LOOK_SECONDS = 0.02


def launch(
    flags: Sequence[str], *, folder: Path, environment: Mapping[str, str], log: IO[bytes]
) -> "subprocess.Popen[bytes]":
    """In a session of its own: Ctrl-C in our terminal does not reach it."""
    return subprocess.Popen(
        child_python.command("gsd_review_broker", *flags),
        cwd=folder,
        env=child_python.environment(environment),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def await_answer(process: "subprocess.Popen[bytes]", target: Target, *, seconds: float) -> RunningBroker | None:
    """The broker that this very process became. None if the process has exited, or still runs after so long."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        # Cheaper than a call, as long as no broker has announced itself.
        if runtime_path(target.locations.database).exists():
            running = find(target)
            if running is not None and running.pid == process.pid:
                return running
        time.sleep(_LOOK_SECONDS)
    return None
