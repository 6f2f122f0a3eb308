"""Start to ready, over what importing the MCP SDK's server takes alone."""

import json
import signal
import subprocess
import sys
import time

from tests.support.processes import BrokerProcess, free_environment

from benchmarks.client import Connection, request
from benchmarks.measuring import Samples
from benchmarks.report import Figure, ratio
from benchmarks.stage import Stage

_BAR = 1.6
_IMPORT = "import mcp.server.lowlevel.server, mcp.server.streamable_http_manager"
_DEADLINE_SECONDS = 30


def start(stage: Stage) -> list[Figure]:
    stage.stop_broker()
    broker = stage.broker
    ready, listed, imported = Samples(), Samples(), Samples()
    _start_once(broker)
    for _ in range(3 if stage.quick else 9):
        imported.time(lambda: _import(broker))
        until_ready, until_listed = _start_once(broker)
        ready.seconds.append(until_ready)
        listed.seconds.append(until_listed)
    return [
        ratio("start: to ready ÷ importing the SDK", ready.p50, imported.p50, _BAR, "import"),
        # Once in a broker's life: the first request that is not a plain call imports the SDK.
        ratio("start: to the first tools/list ÷ importing the SDK", listed.p50, imported.p50, None, "import"),
    ]


def _import(broker: BrokerProcess) -> None:
    command = [sys.executable, "-c", _IMPORT]
    subprocess.run(command, cwd=broker.folder, env=free_environment(broker.home), check=True)


def _start_once(broker: BrokerProcess) -> tuple[float, float]:
    """Seconds until it is ready, and until a client has the list of tools. Ready is when the runtime file is there:
    it is written once connections are accepted."""
    broker.runtime_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "gsd_review_broker", "--port", "0"]
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=broker.folder,
        env=free_environment(broker.home),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not broker.runtime_file.exists():
            if process.poll() is not None or time.perf_counter() - began > _DEADLINE_SECONDS:
                raise TimeoutError("the broker did not come up")
            time.sleep(0.001)
        ready = time.perf_counter() - began
        port = int(json.loads(broker.runtime_file.read_text())["url"].rsplit(":", 1)[1])
        with Connection(port) as connection:
            connection.exchange(request(port, "tools/list", {}))
        return ready, time.perf_counter() - began
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=10)
