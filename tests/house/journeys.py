"""Find the modules that take part in two journeys: those a reader opens to follow them."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.house.measures import PACKAGE, SOURCE
from tests.support.gated import FILES, Gated
from tests.support.processes import BrokerProcess, free_environment, make_repository
from tests.support.waiting import PATIENCE

# Runs the broker and keeps the modules whose functions run. SIGUSR1 forgets them; SIGUSR2 writes them to a file.
_TRACED = """
import json, os, signal, sys, threading
folder, report = sys.argv.pop(1), sys.argv.pop(1)
files = set()
def watch(frame, event, _argument):
    if event == "call":
        files.add(frame.f_code.co_filename)
def write(*_):
    names = sorted(file[len(folder):] for file in set(files) if file.startswith(folder))
    with open(report + ".part", "w") as out:
        json.dump(names, out)
    os.replace(report + ".part", report)
signal.signal(signal.SIGUSR1, lambda *_: files.clear())
signal.signal(signal.SIGUSR2, write)
threading.setprofile(watch)
sys.setprofile(watch)
from gsd_review_broker.cli.main import serve_command
sys.exit(serve_command())
"""
_IMPORTED = re.compile(rf"import time:.*\|\s+({PACKAGE}[\w.]*)$", re.MULTILINE)


class TracedBroker(BrokerProcess):
    """A broker that tells which of its modules took part since it was last told to forget them."""

    @property
    def report(self) -> Path:
        return self.home / "modules.json"

    def _started(self, arguments: tuple[str, ...]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-c", _TRACED, f"{SOURCE / PACKAGE}{os.sep}", str(self.report), *arguments],
            cwd=self.folder, env=free_environment(self.home), stdout=self.log, stderr=self.log,
        )  # fmt: skip

    def forget(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(0.3)

    def modules(self) -> set[str]:
        assert self.process is not None
        self.report.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR2)
        end = time.monotonic() + PATIENCE
        while not self.report.exists():
            assert time.monotonic() < end, "the broker wrote no list of modules"
            time.sleep(0.01)
        return set(json.loads(self.report.read_text()))


def modules_of_journeys() -> dict[str, set[str]]:
    """Return the modules of `create_review`, and of a commit behind the gate: the hook's and the broker's."""
    with tempfile.TemporaryDirectory(prefix="tandem-house-") as name:
        home = Path(name) / "home"
        home.mkdir()
        repository = make_repository(Path(name) / "house", FILES)
        with TracedBroker(repository, home=home) as broker:
            here = Gated(broker, home)
            here.tandem("gate", "install", "--mode", "block")
            return {"create_review": _create_review(here, broker), "commit": _commit(here, broker)}


def _create_review(here: Gated, broker: TracedBroker) -> set[str]:
    here.stage(hello_txt="one\ntwo\nchanged\n")
    # The first call connects and imports what later calls find ready.
    here.propose()
    broker.forget()
    here.propose()
    return broker.modules()


def _commit(here: Gated, broker: TracedBroker) -> set[str]:
    here.stage(hello_txt="one\ntwo\nchanged\n")
    hook = here.folder / ".git" / "hooks" / "reference-transaction"
    hook.write_text(hook.read_text().replace(" -I -S -c ", " -X importtime -I -S -c "))
    broker.forget()
    refused = here.git("commit", "-q", "-m", "unapproved")
    assert refused.code != 0, refused
    hooks = {module.removeprefix(PACKAGE + ".").replace(".", "/") + ".py" for module in _IMPORTED.findall(refused.err)}
    assert hooks, "the hook ran without importing the package"
    return broker.modules() | hooks
