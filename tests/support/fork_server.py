"""Runs `gsd-review-broker` and `tandem` in forks of a process that has imported the package already.

The imports take more than nine tenths of the time in which a broker starts, and the tests start hundreds. Everything
else is as usual: a process of its own, with its own folder, environment, standard streams, signals and exit code.
`tests/support/forks.py` is the other side, and starts this as a program.
"""

import atexit
import contextlib
import importlib
import json
import os
import pkgutil
import selectors
import socket
import sys
import threading
import time
from typing import Any

import gsd_review_broker

LONGEST_REQUEST = 1_000_000


def import_everything() -> None:
    for module in pkgutil.walk_packages(gsd_review_broker.__path__, "gsd_review_broker."):
        if not module.name.endswith("__main__") and ".migrations" not in module.name:
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    # The libraries import these when they are first used.
    for name in ("alembic.command", "uvicorn.lifespan.on", "uvloop", "encodings.idna"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def become(request: dict[str, Any], streams: list[int]) -> int:
    """In the child: what a start by exec would have made of it."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.argv = [request["program"], *request["arguments"]]
    main = importlib.import_module("gsd_review_broker.cli.main")
    command = main.serve_command if request["program"].endswith("gsd-review-broker") else main.main
    try:
        code = command()
    except SystemExit as error:
        code = error.code
    except BaseException:  # noqa: BLE001 - as an interpreter does
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)


class ForkServer:
    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ, self._accept)
        # The tests' end closes it when they are over, however they end.
        self._selector.register(sys.stdin, selectors.EVENT_READ, sys.exit)

    def serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                key.data()

    def _accept(self) -> None:
        connection, _ = self._listening.accept()
        message, streams, _, _ = socket.recv_fds(connection, LONGEST_REQUEST, 3)
        pid = os.fork()
        if pid == 0:
            self._selector.close()
            self._listening.close()
            connection.close()
            os._exit(become(json.loads(message), streams))
        for stream in streams:
            os.close(stream)
        connection.sendall(f"{pid}\n".encode())
        watched = os.pidfd_open(pid)
        self._selector.register(watched, selectors.EVENT_READ, lambda: self._report(connection, pid, watched))

    def _report(self, connection: socket.socket, pid: int, watched: int) -> None:
        self._selector.unregister(watched)
        os.close(watched)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(OSError), connection:
            connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


if __name__ == "__main__":
    import_everything()
    ForkServer(socket.socket(fileno=int(sys.argv[1]))).serve()
