"""The client's connection: kept while it is used, never relied on when it was idle."""

import http.server
import threading
from typing import ClassVar

import pytest

from gsd_review_broker.client import connection
from gsd_review_broker.client.connection import Connection
from gsd_review_broker.errors import BrokerError, Code


class Closing(http.server.BaseHTTPRequestHandler):
    """Ends a kept connection that is idle, as every server does one day."""

    protocol_version = "HTTP/1.1"
    timeout = 0.3
    connections: list[int]

    def setup(self) -> None:
        type(self).connections.append(1)
        super().setup()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


class Proxy(Closing):
    """In front of brokers that are all down; or a broker that is stopping, which says so itself."""

    body, kind = b"<h1>502 Bad Gateway</h1>", "text/html"
    connections: ClassVar[list[int]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(502)
        self.send_header("Content-Type", self.kind)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)


class Stopping(Proxy):
    body, kind = b'{"error": {"code": "unavailable", "message": "stopped", "hint": "Call again."}}', "application/json"


@pytest.mark.parametrize(
    ("kind", "message"), [(Proxy, "no broker answers behind http://127.0.0.2:"), (Stopping, "stopped")]
)
def test_a_proxy_without_a_broker_is_unavailable_and_says_where(kind: type[Proxy], message: str) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.2", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        client = Connection(f"http://127.0.0.2:{server.server_port}")
        with pytest.raises(BrokerError) as refused:
            client.call("list_reviews", {})
        client.close()
        server.shutdown()
        thread.join()
    assert (refused.value.code, refused.value.message[: len(message)]) == (Code.UNAVAILABLE, message)
    assert "tandem up" not in str(refused.value.hint)


def test_calls_in_a_row_share_a_connection_and_an_idle_one_is_not_trusted(monkeypatch) -> None:
    Closing.connections = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Closing) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        client = Connection(f"http://127.0.0.1:{server.server_port}")
        client.get("/")
        client.get("/")
        assert len(Closing.connections) == 1
        monkeypatch.setattr(connection, "_IDLE_SECONDS", 0.0)
        client.get("/")
        assert len(Closing.connections) == 2
        client.close()
        server.shutdown()
        thread.join()
