"""The HTTP protocol of a connection: uvicorn's, with limits that apply before any handler runs."""

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

MOST_HEADER_BYTES = 64 * 1024
_TOO_LARGE = 431
_REFUSAL = f"too_large: the request's headers are over the limit of {MOST_HEADER_BYTES} bytes.\n".encode()


class _HeadersTooLargeError(Exception):
    pass


class BoundedHttpProtocol(HttpToolsProtocol):
    """Limits the headers. A client that sends requests without reading the answers is read again only when all are
    answered.
    """

    _in_headers = True
    _header_bytes = 0
    _is_refused = False

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._header_bytes += len(data) if self._in_headers else 0
        super().data_received(data)
        if self._in_headers and self._header_bytes > MOST_HEADER_BYTES and not self._is_refused:
            self._refuse()

    def on_message_begin(self) -> None:
        self._in_headers, self._header_bytes = True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # White space around a value is not part of it (RFC 9110, 5.5); the parser does not strip trailing white space.
        super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        self._in_headers = False
        if sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > MOST_HEADER_BYTES:
            # Stops the parser; its caller answers with send_400_response.
            self._is_refused = True
            raise _HeadersTooLargeError
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        if self._is_refused:
            self._refuse()
        else:
            super().send_400_response(msg)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline:
            self.flow.pause_reading()

    def _refuse(self) -> None:
        self._is_refused = True
        head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[_TOO_LARGE] + head % len(_REFUSAL) + _REFUSAL)
        self.transport.close()
