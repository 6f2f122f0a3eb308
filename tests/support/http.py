"""A browser without a display: one request at a time, and its answer."""

import http.client
import re
from dataclasses import dataclass
from urllib.parse import urlencode

from tests.support.waiting import PATIENCE

TOKEN = re.compile(r'name="token" value="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8")


class Browser:
    def __init__(self, port: int) -> None:
        self.port = port
        self.token: str | None = None

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def form_token(self, page: str) -> str:
        match = TOKEN.search(self.get(page).text)
        assert match is not None, f"no form on {page}"
        return match.group(1)

    def post(self, path: str, fields: dict[str, object], headers: dict[str, str] | None = None) -> Answer:
        headers_sent = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": f"http://127.0.0.1:{self.port}",
            "Sec-Fetch-Site": "same-origin",
            **(headers or {}),
        }
        return self.ask(
            "POST", path, urlencode(fields).encode(), {name: value for name, value in headers_sent.items() if value}
        )
