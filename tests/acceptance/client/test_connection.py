"""The client's connection: kept while it is used, never relied on when it was idle."""

import http.server
import threading

from gsd_review_broker.client import connection
from gsd_review_broker.client.connection import Connection


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
