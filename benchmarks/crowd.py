"""Many clients in one thread: each is a script that yields a request and is sent the answer's body."""

import itertools
import selectors
import socket
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.client import Incoming, connect

Script = Generator[bytes, bytes, None]
_RECEIVE_BYTES = 1 << 18
_LONGEST_SILENCE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Work:
    calls: int
    seconds: float

    @property
    def calls_a_second(self) -> float:
        return self.calls / self.seconds


@dataclass(slots=True)
class _Member:
    script: Script
    socket: socket.socket
    incoming: Incoming


def drive(ports: int | Sequence[int], scripts: Iterable[Script], *, seconds: float | None = None) -> Work:
    """Until every script ends, or for this long: then calls under way are answered, but not counted. With several
    ports, one script after the other takes the next."""
    each = itertools.cycle([ports] if isinstance(ports, int) else ports)
    with selectors.DefaultSelector() as selector:
        open_sockets: list[socket.socket] = []
        try:
            for script in scripts:
                member = _Member(script, connect(next(each)), Incoming())
                open_sockets.append(member.socket)
                member.socket.sendall(next(script))
                selector.register(member.socket, selectors.EVENT_READ, member)
            return _exchange(selector, seconds)
        finally:
            for connection in open_sockets:
                connection.close()


def _exchange(selector: selectors.BaseSelector, seconds: float | None) -> Work:
    calls = 0
    began = time.perf_counter()
    deadline = None if seconds is None else began + seconds
    ended = None
    while selector.get_map():
        ready = selector.select(_LONGEST_SILENCE_SECONDS)
        if not ready:
            raise TimeoutError("the server has not answered anybody for 30 s")
        for key, _ in ready:
            body = key.data.incoming.feed(key.data.socket.recv(_RECEIVE_BYTES))
            if body is None:
                continue
            if deadline is not None and time.perf_counter() >= deadline:
                ended = ended or time.perf_counter()
                selector.unregister(key.fileobj)
                continue
            calls += 1
            if not _go_on(key.data, body):
                selector.unregister(key.fileobj)
    return Work(calls, (ended or time.perf_counter()) - began)


def _go_on(member: _Member, body: bytes) -> bool:
    try:
        following = member.script.send(body)
    except StopIteration:
        return False
    member.incoming = Incoming()
    member.socket.sendall(following)
    return True
