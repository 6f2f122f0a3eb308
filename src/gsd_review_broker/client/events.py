"""The broker's event stream, read in a thread, so that the caller can watch the clock and the terminal meanwhile."""

import contextlib
import queue
import threading
from collections.abc import Iterator
from urllib.parse import urlencode

from gsd_review_broker.client.connection import UnreachableError
from gsd_review_broker.client.http import OK, HttpConnection, lines_of

# The broker sends a keep-alive every 15 s.
_SILENCE_SECONDS = 45.0


class EventStreamEndedError(UnreachableError):
    """The broker closed the stream or is gone; a new stream delivers what was missed."""


class EventHints:
    """Ids of events, from now on or after one of them. The caller then asks what happened."""

    def __init__(self, url: str, *, token: str | None, review_id: str | None, after: int | None) -> None:
        self._http = HttpConnection.to(url)
        self._hints: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        parameters = {"review": review_id, "after": after}
        query = urlencode({name: value for name, value in parameters.items() if value is not None})
        headers = {"Accept": "text/event-stream"} | ({"Authorization": f"Bearer {token}"} if token else {})
        try:
            status, _, body = self._http.stream("GET", f"/events?{query}", None, headers, patience=_SILENCE_SECONDS)
        except OSError as error:
            self._http.close()
            raise UnreachableError(f"the broker at {url} does not answer ({error})") from error
        if status != OK:
            self._http.close()
            raise UnreachableError(f"the broker at {url} does not stream events (status {status})")
        threading.Thread(target=self._read, args=(body,), daemon=True, name="events").start()

    def next(self, seconds: float) -> int | None:
        """Return the next event's id; None if none comes within this many seconds."""
        try:
            hint = self._hints.get(timeout=seconds)
        except queue.Empty:
            return None
        if hint is None:
            raise EventStreamEndedError("the broker's event stream ended")
        return hint

    def close(self) -> None:
        """Stop the thread, which closes the connection."""
        self._http.cancel()

    def _read(self, body: Iterator[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in lines_of(body):
                # Every event except "ready" has an id.
                if line.startswith(b"id: "):
                    self._hints.put(int(line[4:]))
        self._http.close()
        self._hints.put(None)
