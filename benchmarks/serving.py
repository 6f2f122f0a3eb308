"""Runs a yardstick on the same HTTP server and loop as the broker. Prints its port."""

import asyncio
import gc
import socket

import uvicorn
import uvloop
from starlette.applications import Starlette


def serve(application: Starlette) -> None:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.bind(("127.0.0.1", 0))
    listening.listen(2048)
    listening.setblocking(False)
    config = uvicorn.Config(
        application,
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
    )
    print(listening.getsockname()[1], flush=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[listening]))


def settle() -> None:
    """As in the broker when it is ready: objects that live as long as the server are not collected."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
