"""HTTP for a command that lives for some milliseconds: one kept connection to a broker.

`http.client` would be half of such a command's time: it imports the e-mail package and TLS. This module sends a request
and reads its answer, with a length, in chunks, or up to the end of the connection: whole, or as it arrives.
"""

import contextlib
import socket
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

OK = 200
BAD_REQUEST = 400
TOO_LARGE = 413
BROKER_FAILED = 500
PORTS = {"http": 80, "https": 443}
_LONGEST_HEAD = 65_536
_RECEIVE_BYTES = 65_536
_NO_CONTENT = 204
# Numbers, which need no name service; "localhost" may be either.
_FAMILIES = {"127.0.0.1": socket.AF_INET, "::1": socket.AF_INET6}


class BadAnswerError(OSError):
    """What answers does not speak HTTP, or stopped in the middle. The text is a sentence's end."""


class HttpConnection:
    def __init__(self, host: str, port: int, *, tls: bool = False) -> None:
        self._tls = tls
        self._host = host
        self._port = port
        self._socket: socket.socket | None = None
        self._unread = b""
        self._is_cancelled = False

    @classmethod
    def to(cls, url: str) -> "HttpConnection":
        """Raises ValueError for a port that is not a number."""
        parts = urlsplit(url)
        return cls(parts.hostname or "", parts.port or PORTS[parts.scheme], tls=parts.scheme == "https")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._unread = b""

    def cancel(self) -> None:
        """Stop a request that another thread is making; it raises OSError there, and so does every later one."""
        self._is_cancelled = True
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def request(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], *, patience: float
    ) -> tuple[int, str, bytes]:
        """Return status, content type and the whole body. `patience` is the longest silence. Raises OSError."""
        status, kind, pieces = self.stream(method, path, body, headers, patience=patience)
        return status, kind, b"".join(pieces)

    def stream(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], *, patience: float
    ) -> tuple[int, str, Iterator[bytes]]:
        """Return status, content type and the pieces of the body, as they arrive.

        A caller that does not read all of them closes the connection.
        """
        sent = self._head(method, path, body, headers) + (body or b"")
        connection = self._connected(patience)
        is_cut = False
        try:
            connection.sendall(sent)
        except (BrokenPipeError, ConnectionResetError):
            # A broker that refuses a large body answers and closes before it has read everything.
            is_cut = True
        status, facts = self._answer_head(connection)
        if is_cut:
            facts["connection"] = "close"
        return status, facts.get("content-type", ""), self._body(connection, status, facts)

    def _head(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> bytes:
        host = f"[{self._host}]" if ":" in self._host else self._host
        length = {} if body is None else {"Content-Length": str(len(body))}
        named = {"Host": f"{host}:{self._port}", **headers, **length}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
        if " " in path or not all(line.isascii() and line.isprintable() for line in lines):
            raise BadAnswerError("the request has a character that HTTP does not allow")
        return "\r\n".join([*lines, "", ""]).encode()

    def _connected(self, patience: float) -> socket.socket:
        if self._socket is None:
            family = _FAMILIES.get(self._host)
            if family is None:
                self._socket = socket.create_connection((self._host, self._port), patience)
            else:
                self._socket = socket.socket(family, socket.SOCK_STREAM)
                self._socket.settimeout(patience)
                self._socket.connect((self._host, self._port))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls:
                import ssl  # noqa: PLC0415 - only for a broker on another machine

                self._socket = ssl.create_default_context().wrap_socket(self._socket, server_hostname=self._host)
        if self._is_cancelled:
            raise BadAnswerError("the call was cancelled")
        self._socket.settimeout(patience)
        return self._socket

    def _answer_head(self, connection: socket.socket) -> tuple[int, dict[str, str]]:
        head = self._until(connection, b"\r\n\r\n", _LONGEST_HEAD).decode("latin-1")
        first, *lines = head.split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
            raise BadAnswerError("it does not speak HTTP")
        pairs = (line.partition(":") for line in lines)
        return int(rest[:3]), {name.strip().lower(): value.strip() for name, _, value in pairs}

    def _body(self, connection: socket.socket, status: int, facts: dict[str, str]) -> Iterator[bytes]:
        length = facts.get("content-length")
        if status == _NO_CONTENT:
            length = "0"
        if facts.get("transfer-encoding", "").lower() == "chunked":
            yield from self._chunks(connection)
        elif length is None:
            yield from self._rest(connection)
        elif length.isdigit():
            yield from self._pieces(connection, int(length))
        else:
            raise BadAnswerError("it does not speak HTTP")
        if facts.get("connection", "").lower() == "close":
            self.close()

    def _chunks(self, connection: socket.socket) -> Iterator[bytes]:
        while size := self._chunk_size(connection):
            yield from self._pieces(connection, size)
            self._until(connection, b"\r\n", _LONGEST_HEAD)
        # Fields may follow the last chunk; the last one is an empty line.
        while self._until(connection, b"\r\n", _LONGEST_HEAD):
            pass

    def _chunk_size(self, connection: socket.socket) -> int:
        try:
            return int(self._until(connection, b"\r\n", _LONGEST_HEAD).partition(b";")[0], 16)
        except ValueError as error:
            raise BadAnswerError("it does not speak HTTP") from error

    def _until(self, connection: socket.socket, mark: bytes, longest: int) -> bytes:
        while (at := self._unread.find(mark)) < 0:
            if len(self._unread) > longest:
                raise BadAnswerError("it does not speak HTTP")
            self._unread += self._more(connection)
        found, self._unread = self._unread[:at], self._unread[at + len(mark) :]
        return found

    def _pieces(self, connection: socket.socket, count: int) -> Iterator[bytes]:
        while count > 0:
            read = self._unread or self._more(connection)
            piece, self._unread = read[:count], read[count:]
            count -= len(piece)
            yield piece

    def _rest(self, connection: socket.socket) -> Iterator[bytes]:
        yield self._unread
        while piece := connection.recv(_RECEIVE_BYTES):
            yield piece
        self.close()

    def _more(self, connection: socket.socket) -> bytes:
        piece = connection.recv(_RECEIVE_BYTES)
        if not piece:
            raise BadAnswerError("it closed the connection without a whole answer")
        return piece


def lines_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a body as they arrive, without their ends."""
    unread = b""
    for piece in pieces:
        *lines, unread = (unread + piece).split(b"\n")
        yield from (line.removesuffix(b"\r") for line in lines)
    if unread:
        yield unread
