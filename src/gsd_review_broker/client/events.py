"""The broker's event stream, read in a thread, so that the caller can watch the clock and the terminal meanwhile."""

import contextlib
import http.client
import queue
import socket
import threading
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from gsd_review_broker.client.connection import UnreachableError

# The broker sends a keep-alive every 15 s.
_SILENCE_SECONDS = 45.0


@dataclass(frozen=True, slots=True)
class EventHint:
    """Something happened, up to this event's id. The caller then asks what it was."""

    last_id: int


class EventStreamEndedError(UnreachableError):
    """The broker closed the stream or is gone; a new stream delivers what was missed."""


class EventHints:
    """Hints from now on, or after an event's id."""

    def __init__(self, url: str, *, token: str | None, review_id: str | None, after: int | None) -> None:
        parts = urlsplit(url)
        connection = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._http = connection(parts.hostname or "", parts.port, timeout=_SILENCE_SECONDS)
        self._hints: queue.SimpleQueue[EventHint | None] = queue.SimpleQueue()
        parameters = {"review": review_id, "after": after}
        query = urlencode({name: value for name, value in parameters.items() if value is not None})
        headers = {"Accept": "text/event-stream"} | ({"Authorization": f"Bearer {token}"} if token else {})
        try:
            self._http.request("GET", f"/events?{query}", headers=headers)
            response = self._http.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self._http.close()
            raise UnreachableError(f"the broker at {url} does not answer ({error})") from error
        if response.status != http.client.OK:
            self._http.close()
            raise UnreachableError(f"the broker at {url} does not stream events (status {response.status})")
        self._socket = self._http.sock
        threading.Thread(target=self._read, args=(response,), daemon=True, name="events").start()

    def next(self, seconds: float) -> EventHint | None:
        """The next hint; None if none comes within this many seconds."""
        try:
            hint = self._hints.get(timeout=seconds)
        except queue.Empty:
            return None
        if hint is None:
            raise EventStreamEndedError("the broker's event stream ended")
        return hint

    def close(self) -> None:
        """Wakes the thread, which closes the rest."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _read(self, response: http.client.HTTPResponse) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError), response:
            while line := response.readline():
                # Every event except "ready" has an id.
                if line.startswith(b"id: "):
                    self._hints.put(EventHint(int(line[4:])))
        self._http.close()
        self._hints.put(None)
