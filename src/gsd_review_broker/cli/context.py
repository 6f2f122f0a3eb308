"""One run of a command: which broker it calls, under which name, and how it answers."""

import argparse
import os
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gsd_review_broker.cli.screen import Part, Screen
from gsd_review_broker.client import RunningBroker, Target, connect, find
from gsd_review_broker.client.connection import ANSWER_SECONDS, Connection, Json
from gsd_review_broker.client.discovery import USER
from gsd_review_broker.settings.locations import own_token
from gsd_review_broker.settings.runtime_file import UntrustedRuntimeFileError, announced, keeper_token

if TYPE_CHECKING:
    from gsd_review_broker.settings.config import Configuration

# The options of a command that are settings of the broker.
BROKER_FLAGS = ("host", "port", "auth", "db", "config", "log_level", "log_format")


def keepers_token(target: Target) -> str | None:
    """Return the keeper's token: a user who can read the runtime file of a broker on this machine needs no other."""
    if target.url is not None:
        return None
    with suppress(UntrustedRuntimeFileError):
        announcement = announced(target.locations.database)
        return keeper_token(announcement.secret) if announcement else None
    return None


def keepers_connection(context: "Context", *, own_token_first: bool = True) -> Connection | None:
    """Return a connection with the keeper's token; None without a broker here, or if the user has a token."""
    token = None if own_token_first and context.token else keepers_token(context.target)
    broker = find(context.target, token=token) if token else None
    return broker.connection if broker else None


def root_of(options: argparse.Namespace) -> Path | None:
    """Return the repository whose broker the options mean; None for the user's broker."""
    from gsd_review_broker.git.discovery import find_root

    return None if options.user else find_root(Path.cwd())


def configuration_of(options: argparse.Namespace, *, is_stored: bool = False) -> "Configuration":
    """Load all settings, with the options as flags. With `is_stored`, refuse a database that git tracks."""
    from gsd_review_broker.settings import config

    root = root_of(options)
    configuration = config.load(root=root, flags={name: getattr(options, name, None) for name in BROKER_FLAGS})
    if is_stored:
        config.refuse_tracked(configuration.database, root)
    return configuration


class Context:
    def __init__(self, options: argparse.Namespace, screen: Screen | None = None) -> None:
        self.screen = screen or Screen()
        self.options = options
        self.wants_json: bool = getattr(options, "json", False)
        self._broker: RunningBroker | None = None

    @cached_property
    def target(self) -> Target:
        options = self.options
        return Target.of(Path.cwd(), url=options.url, db=options.db, config=options.config, user=options.user)

    @cached_property
    def token(self) -> str | None:
        return own_token()

    @property
    def broker(self) -> RunningBroker:
        if self._broker is None:
            self._broker = connect(self.target, token=self.token)
        return self._broker

    def forget_broker(self) -> None:
        """Look for the broker again at the next call: its address may have changed."""
        if self._broker is not None:
            self._broker.connection.close()
            self._broker = None

    def ask(self, tool: str, *, patience: float = ANSWER_SECONDS, endpoint: str = "/mcp", **arguments: Any) -> Json:
        """Return the tool's result; leave out arguments that are None."""
        present = {name: value for name, value in arguments.items() if value is not None}
        return self.broker.connection.call(tool, present, patience=patience, endpoint=endpoint)

    def call(self, tool: str, **arguments: Any) -> Json:
        """Do the same with a progress message."""
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
        """Print the result as JSON, or one line about it."""
        if self.wants_json:
            self.screen.json(result)
        else:
            self.screen.say(*line)

    def workspace_of(self, here: Path | None) -> str | None:
        """Return the workspace to name in a proposal. The broker's own repository need not be named; another work tree
        must be. A broker on another machine does not know paths of this one: TANDEM_WORKSPACE is a path there."""
        named = os.environ.get("TANDEM_WORKSPACE")
        if named:
            return named
        if here is None or self.target.is_elsewhere:
            return None
        return str(here) if self.broker.serves == USER or here != self.target.locations.root else None

    @property
    def identity(self) -> str:
        """Return the name of --as, else the token's, else the person's."""
        from gsd_review_broker.settings.names import person_here

        return getattr(self.options, "identity", None) or self.token_identity or person_here()

    @cached_property
    def token_identity(self) -> str | None:
        """Return the name that the broker knows the token by; None without a token."""
        return self.get("/api/whoami")["identity"] if self.token else None
