"""One message on its way to the broker: a POST, and the messages that answer it."""

import json
from collections.abc import Iterator
from typing import Any, cast

from gsd_review_broker.client.http import BAD_REQUEST, BROKER_FAILED, BadAnswerError, HttpConnection, lines_of

# More than the longest wait that the broker grants.
_ANSWER_SECONDS = 300.0
_LONGEST_REASON = 500


class NotTakenError(Exception):
    """The broker answered that it does not take the message; the same message will not be taken later either."""


class BridgedCall:
    """One POST, and the messages that answer it."""

    def __init__(self, headers: dict[str, str], *, waits: bool = False) -> None:
        self._headers = headers
        # It may take minutes until there is something to answer.
        self.waits = waits
        self._http: HttpConnection | None = None
        self.is_cancelled = False
        self.has_answered = False

    def cancel(self) -> None:
        self.is_cancelled = True
        if self._http is not None:
            self._http.cancel()

    def answers(self, url: str, endpoint: str, body: bytes) -> Iterator[Any]:
        self._http = HttpConnection.to(url)
        try:
            if self.is_cancelled:
                raise BadAnswerError("the client cancelled it")
            status, kind, pieces = self._http.stream("POST", endpoint, body, self._headers, patience=_ANSWER_SECONDS)
            if kind.startswith("text/event-stream"):
                yield from self._streamed(pieces)
            else:
                yield from self._plain(status, b"".join(pieces))
        finally:
            self._http.close()

    def _plain(self, status: int, body: bytes) -> Iterator[Any]:
        if status < BAD_REQUEST and not body.strip():
            return
        message = _message(body)
        if message is None:
            text = f"status {status}: {body[:_LONGEST_REASON].decode('utf-8', 'replace').strip()}"
            if status < BROKER_FAILED:
                raise NotTakenError(text)
            raise BadAnswerError(text)
        self.has_answered = True
        yield message

    def _streamed(self, pieces: Iterator[bytes]) -> Iterator[Any]:
        data: list[bytes] = []
        for line in lines_of(pieces):
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and any(data):
                message = json.loads(b"\n".join(data))
                # A progress message may come twice; the answer ends the call.
                self.has_answered = "result" in message or "error" in message
                yield message
                data = []
        if not self.has_answered:
            raise BadAnswerError("the answer broke off")


def _message(body: bytes) -> Any:
    """The JSON-RPC message, or None: refusals before the protocol are text, or JSON of another kind."""
    try:
        message = json.loads(body)
    except ValueError:
        return None
    if isinstance(message, dict):
        return cast("Any", message) if "jsonrpc" in message else None
    return cast("Any", message) if isinstance(message, list) else None
