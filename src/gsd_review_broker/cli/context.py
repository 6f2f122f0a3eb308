"""One run of a command: which broker it calls, under which name, and how it answers."""

import argparse
import os
from functools import cached_property
from pathlib import Path
from typing import Any

from gsd_review_broker.cli.render.screen import Part, Screen
from gsd_review_broker.client import RunningBroker, Target, connect, find
from gsd_review_broker.client.connection import ANSWER_SECONDS, Connection, Json
from gsd_review_broker.client.discovery import USER
from gsd_review_broker.settings.locations import own_token
from gsd_review_broker.settings.runtime_file import announced, keeper_token


def keepers_connection(context: "Context", *, own_token_first: bool = True) -> Connection | None:
    """To a broker of this machine, as whoever runs it; None if none is running, or if there is a token of one's own."""
    if context.target.url or (own_token_first and context.token):
        return None
    broker = find(context.target)
    announcement = announced(context.target.locations.database) if broker else None
    if broker is None or announcement is None:
        return None
    broker.connection.token = keeper_token(announcement.secret)
    return broker.connection


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

    @cached_property
    def token(self) -> str | None:
        return own_token()

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

    def workspace_of(self, here: Path | None) -> str | None:
        """What a proposal from this work tree names. The broker's own repository need not be named; another work tree
        must be. A broker on another machine does not know paths of this one: TANDEM_WORKSPACE is a path there."""
        named = os.environ.get("TANDEM_WORKSPACE")
        if named:
            return named
        if here is None or self.target.is_elsewhere:
            return None
        return str(here) if self.broker.serves == USER or here != self.target.locations.root else None

    @property
    def identity(self) -> str:
        """The acting identity: the name that is given, else the token's, else the person's."""
        from gsd_review_broker.settings.names import person_here

        return getattr(self.options, "identity", None) or self.token_identity or person_here()

    @cached_property
    def token_identity(self) -> str | None:
        """The name that the broker knows the token by; None where it does not look at tokens."""
        return self.get("/api/whoami")["identity"] if self.token else None
