"""The client's own HTTP: every way that an answer may be framed, and answers that are not HTTP."""

import contextlib
import socket
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pytest

from gsd_review_broker.client.http import BadAnswerError, HttpConnection, lines_of

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


class Answering:
    """Sends each script's bytes for one request; a connection ends after its last script."""

    def __init__(self, *connections: list[bytes]) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.requests: list[bytes] = []
        self._thread = threading.Thread(target=self._serve, args=(connections,), daemon=True)
        self._thread.start()

    def _serve(self, connections: tuple[list[bytes], ...]) -> None:
        for answers in connections:
            with contextlib.suppress(OSError):
                connection, _ = self._listening.accept()
                with connection:
                    for answer in answers:
                        self.requests.append(connection.recv(65_536))
                        # In small pieces: an answer may be cut anywhere.
                        for at in range(0, len(answer), 7):
                            connection.sendall(answer[at : at + 7])

    def close(self) -> None:
        self._thread.join(10)
        self._listening.close()


@contextlib.contextmanager
def answered(*connections: list[bytes]) -> Generator[tuple[HttpConnection, Answering]]:
    server = Answering(*connections)
    client = HttpConnection("127.0.0.1", server.port)
    try:
        yield client, server
    finally:
        client.close()
        server.close()


def get(client: HttpConnection) -> tuple[int, str, bytes]:
    return client.request("GET", "/", None, {}, patience=10)


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (OK + b"Content-Length: 2\r\n\r\n{}", b"{}"),
        (OK + b"CONTENT-LENGTH:2\r\n\r\n{}", b"{}"),
        (OK + b"Content-Length: 0\r\n\r\n", b""),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n", b"{}"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n0\r\nExtra: 1\r\n\r\n", b"0123456789"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b""),
    ],
)
def test_an_answer_is_read_whole_and_the_connection_is_kept(answer: bytes, body: bytes) -> None:
    with answered([answer, answer]) as (client, server):
        assert get(client) == (200, "application/json", body)
        assert get(client) == (200, "application/json", body)
        assert len(server.requests) == 2


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    with answered([OK + b"\r\n" + b"x" * 100_000], [OK + b"Content-Length: 1\r\n\r\ny"]) as (client, _):
        assert get(client)[2] == b"x" * 100_000
        assert get(client)[2] == b"y"


def test_an_answer_that_closes_its_connection_is_the_last_on_it() -> None:
    closing = OK + b"Connection: close\r\nContent-Length: 1\r\n\r\nx"
    with answered([closing], [OK + b"Content-Length: 1\r\n\r\ny"]) as (client, _):
        assert [get(client)[2], get(client)[2]] == [b"x", b"y"]


def test_no_content_has_no_body() -> None:
    with answered([b"HTTP/1.1 204 No Content\r\n\r\n"]) as (client, _):
        assert get(client) == (204, "", b"")


def test_the_request_names_its_host_its_length_and_its_headers() -> None:
    with answered([OK + b"Content-Length: 0\r\n\r\n"]) as (client, server):
        client.request("POST", "/mcp", b"{}", {"Accept": "*/*"}, patience=10)
    expected = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAccept: */*\r\nContent-Length: 2\r\n\r\n{{}}"
    assert server.requests == [expected.encode()]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        OK,
        OK + b"Content-Length: 5\r\n\r\nxy",
        OK + b"Content-Length: many\r\n\r\nxy",
        OK + b"Transfer-Encoding: chunked\r\n\r\nmany\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nxy",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
    ],
)
def test_what_does_not_speak_http_or_stops_is_an_error(answer: bytes) -> None:
    with answered([answer]) as (client, _), pytest.raises(OSError) as caught:
        get(client)
    assert isinstance(caught.value, BadAnswerError | ConnectionError)


def test_a_silent_server_is_not_waited_for_longer_than_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = HttpConnection("127.0.0.1", listening.getsockname()[1])
        with pytest.raises(TimeoutError):
            client.request("GET", "/", None, {}, patience=0.05)
        client.close()


@pytest.mark.parametrize(("path", "token"), [("/a b", "x"), ("/a\r\nX: y", "x"), ("/ü", "x"), ("/", "x\r\nX: y")])
def test_nothing_slips_a_line_into_the_request(path: str, token: str) -> None:
    with pytest.raises(BadAnswerError):
        HttpConnection("127.0.0.1", 1).request("GET", path, None, {"Authorization": token}, patience=1)


def test_the_lines_of_a_stream_arrive_before_it_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = HttpConnection("127.0.0.1", listening.getsockname()[1])
        first, rest = OK + b"Transfer-Encoding: chunked\r\n\r\n8\r\none\r\ntwo\r\n", b"4\r\n, 3\n\r\n0\r\n\r\n"
        with ThreadPoolExecutor(1) as thread:
            server = thread.submit(accepted, listening, first)
            _, kind, pieces = client.stream("GET", "/events", None, {}, patience=10)
            lines = lines_of(pieces)
            assert (kind, next(lines)) == ("application/json", b"one")
            connection = server.result(10)
            connection.sendall(rest)
            assert list(lines) == [b"two, 3"]
            connection.close()
            client.close()


def test_a_call_that_is_cancelled_ends_and_so_does_one_that_begins_later() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = HttpConnection("127.0.0.1", listening.getsockname()[1])
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(get, client)
            connection, _ = listening.accept()
            connection.recv(65_536)
            client.cancel()
            with pytest.raises(OSError, match="whole answer"):
                waiting.result(10)
            connection.close()
        client.close()
        with pytest.raises(BadAnswerError, match="cancelled"):
            get(client)
        client.close()


def test_a_server_that_refuses_a_large_body_unread_is_heard() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = HttpConnection("127.0.0.1", listening.getsockname()[1])
        refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"
        with ThreadPoolExecutor(1) as thread:
            server = thread.submit(refused_early, listening, refusal)
            try:
                assert client.request("POST", "/", b"x" * 20_000_000, {}, patience=10)[::2] == (413, b"no")
            finally:
                client.close()
                server.result(10)


def accepted(listening: socket.socket, answer: bytes) -> socket.socket:
    connection, _ = listening.accept()
    connection.recv(65_536)
    connection.sendall(answer)
    return connection


def refused_early(listening: socket.socket, refusal: bytes) -> None:
    """Stops reading when it has answered, as a server does; what arrives later is thrown away."""
    connection = accepted(listening, refusal)
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(1_000_000):
        pass
    connection.close()


def test_a_name_is_looked_up() -> None:
    with answered([OK + b"Content-Length: 0\r\n\r\n"]) as (_, server):
        named = HttpConnection("localhost", server.port)
        assert get(named)[0] == 200
        named.close()
