"""One message on its way to the broker: a POST, and the messages that answer it."""

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import urlsplit

# More than the longest wait that the broker grants.
_ANSWER_SECONDS = 300.0
_LONGEST_REASON = 500


class RefusedError(Exception):
    """The broker answered that it does not take the message; the same message will not be taken later either."""


class Call:
    """One POST, and the messages that answer it."""

    def __init__(self, headers: dict[str, str], *, waits: bool = False) -> None:
        self._headers = headers
        # It may take minutes until there is something to answer.
        self.waits = waits
        self._http: http.client.HTTPConnection | None = None
        self.is_cancelled = False
        self.has_answered = False

    def cancel(self) -> None:
        self.is_cancelled = True
        connection = self._http
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def answers(self, url: str, endpoint: str, body: bytes) -> Iterator[Any]:
        parts = urlsplit(url)
        connection = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._http = connection(parts.hostname or "", parts.port, timeout=_ANSWER_SECONDS)
        try:
            response = self._response(self._http, endpoint, body)
            if response.getheader("content-type", "").startswith("text/event-stream"):
                yield from self._streamed(response)
            else:
                yield from self._plain(response)
        finally:
            self._http.close()

    def _response(self, connection: http.client.HTTPConnection, endpoint: str, body: bytes) -> http.client.HTTPResponse:
        """A broker that refuses a large body answers and closes before it has read everything."""
        try:
            connection.request("POST", endpoint, body, self._headers)
        except (BrokenPipeError, ConnectionResetError):
            if connection.sock is None:
                raise
        if self.is_cancelled:
            raise http.client.HTTPException("the client cancelled it")
        return connection.getresponse()

    def _plain(self, response: http.client.HTTPResponse) -> Iterator[Any]:
        body = response.read()
        if response.status < http.client.BAD_REQUEST and not body.strip():
            return
        message = _message(body)
        if message is None:
            text = f"status {response.status}: {body[:_LONGEST_REASON].decode('utf-8', 'replace').strip()}"
            if response.status < http.client.INTERNAL_SERVER_ERROR:
                raise RefusedError(text)
            raise http.client.HTTPException(text)
        self.has_answered = True
        yield message

    def _streamed(self, response: http.client.HTTPResponse) -> Iterator[Any]:
        data: list[bytes] = []
        while line := response.readline():
            line = line.rstrip(b"\r\n")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and any(data):
                message = json.loads(b"\n".join(data))
                # A progress message may come twice; the answer ends the call.
                self.has_answered = "result" in message or "error" in message
                yield message
                data = []
        if not self.has_answered:
            raise http.client.HTTPException("the answer broke off")


def _message(body: bytes) -> Any:
    """The JSON-RPC message, or None: refusals before the protocol are text, or JSON of another kind."""
    try:
        message = json.loads(body)
    except ValueError:
        return None
    if isinstance(message, dict):
        return cast("Any", message) if "jsonrpc" in message else None
    return cast("Any", message) if isinstance(message, list) else None
