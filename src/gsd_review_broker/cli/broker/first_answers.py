"""What a client asks before its first call, answered while the broker starts.

The broker that starts is of this version, so it would give the same answers. They are in a file that `make docs` writes
from the tools themselves: building them here would cost as much time as starting the broker.
"""

import json
from collections.abc import Callable
from functools import cached_property
from importlib import resources
from typing import Any, cast

from gsd_review_broker.client.connection import Json

FILE = "first_answers.json"
_MODERN_VERSION = "io.modelcontextprotocol/protocolVersion"
_SERVER_INFO = "io.modelcontextprotocol/serverInfo"


class FirstAnswers:
    """For one endpoint, as long as no broker runs. `start` begins to start it, and returns at once."""

    def __init__(self, endpoint: str, *, is_running: Callable[[], bool], start: Callable[[], None]) -> None:
        self._endpoint = endpoint
        self._is_running = is_running
        self._start = start
        self._is_over: bool | None = None

    def answer(self, request: Json) -> Json | None:
        """The answer's `result`; None for what only the broker can answer. An empty answer is for a notification."""
        method, params = request.get("method"), _object(request.get("params"))
        if method not in {"initialize", "notifications/initialized", "server/discover", "tools/list", "ping"}:
            return None
        if self._broker_answers():
            return None
        version = _object(params.get("_meta")).get(_MODERN_VERSION)
        if version is not None and version not in self._kept["modern_versions"]:
            # The broker explains which versions it has.
            return None
        match method:
            case "initialize":
                return {"result": self._initialized(params.get("protocolVersion"))}
            case "server/discover":
                return {
                    "result": self._modern(self._described() | {"supportedVersions": self._kept["modern_versions"]})
                }
            case "tools/list":
                tools = {"tools": [self._kept["tools"][name] for name in self._of_endpoint["tools"]]}
                return {"result": tools if version is None else self._modern(tools)}
            case "ping":
                return {"result": {}}
            case _:
                return {}

    def _broker_answers(self) -> bool:
        """Looked up once: a broker that is running, or has come up since, answers itself."""
        if self._is_over is None:
            self._is_over = self._is_running()
            if not self._is_over:
                self._start()
        return self._is_over

    def has_come_up(self) -> None:
        self._is_over = True

    @cached_property
    def _kept(self) -> Json:
        text = resources.files("gsd_review_broker.cli.broker").joinpath(FILE).read_text("utf-8")
        return cast("Json", json.loads(text))

    @property
    def _of_endpoint(self) -> Json:
        return self._kept["endpoints"][self._endpoint]

    def _described(self) -> Json:
        return {"capabilities": {"tools": {"listChanged": False}}, "instructions": self._of_endpoint["instructions"]}

    def _initialized(self, wanted: Any) -> Json:
        known = self._kept["versions"]
        version = wanted if wanted in known else known[-1]
        return self._described() | {"protocolVersion": version, "serverInfo": self._kept["server"]}

    def _modern(self, result: Json) -> Json:
        meta = {_SERVER_INFO: self._kept["server"]}
        return {**result, "cacheScope": "private", "resultType": "complete", "ttlMs": 0, "_meta": meta}


def _object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}
