"""One run of a command: which broker it calls, under which name, and how it answers."""

import argparse
import os
from pathlib import Path
from typing import Any

from gsd_review_broker.cli.render.screen import Part, Screen
from gsd_review_broker.client import RunningBroker, Target, connect
from gsd_review_broker.client.connection import ANSWER_SECONDS, Json


class Context:
    def __init__(self, options: argparse.Namespace, screen: Screen | None = None) -> None:
        self.screen = screen or Screen()
        self.options = options
        self.wants_json: bool = getattr(options, "json", False)
        self._wanted: Target | None = None
        self._broker: RunningBroker | None = None

    @property
    def target(self) -> Target:
        if self._wanted is None:
            options = self.options
            self._wanted = Target.of(
                Path.cwd(), url=options.url, db=options.db, config=options.config, user=options.user
            )
        return self._wanted

    @property
    def token(self) -> str | None:
        return os.environ.get("BROKER_TOKEN")

    @property
    def broker(self) -> RunningBroker:
        """Looked up at the first call."""
        if self._broker is None:
            self._broker = connect(self.target, token=self.token)
        return self._broker

    def forget_broker(self) -> None:
        """Look for it again at the next call: it may have come back elsewhere."""
        if self._broker is not None:
            self._broker.connection.close()
            self._broker = None

    def ask(self, tool: str, *, patience: float = ANSWER_SECONDS, endpoint: str = "/mcp", **arguments: Any) -> Json:
        """The tool's result; arguments that are None are left out."""
        present = {name: value for name, value in arguments.items() if value is not None}
        return self.broker.connection.call(tool, present, patience=patience, endpoint=endpoint)

    def call(self, tool: str, **arguments: Any) -> Json:
        """The same, with a progress message for a person who waits."""
        with self.screen.progress("the broker is working"):
            return self.ask(tool, **arguments)

    def post(self, path: str, **asked: Any) -> Json:
        present = {name: value for name, value in asked.items() if value is not None}
        with self.screen.progress("the broker is working"):
            return self.broker.connection.post(path, present)

    def get(self, path: str) -> Json:
        with self.screen.progress("the broker is working"):
            return self.broker.connection.get(path)

    def answer(self, result: Json, *line: Part) -> None:
        """The result as JSON, or one line about it."""
        if self.wants_json:
            self.screen.json(result)
        else:
            self.screen.say(*line)

    @property
    def identity(self) -> str:
        """The acting identity: a person, unless another name is given."""
        from gsd_review_broker.settings.person import person_here  # noqa: PLC0415 - most commands act as nobody

        return getattr(self.options, "identity", None) or person_here()
