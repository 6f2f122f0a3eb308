"""Where tokens are made: by the running broker, else in the database itself.

Whoever can open the database is its administrator. With a broker running that is whoever can read its runtime file,
and the broker is asked with the keeper's token.
"""

import argparse
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

from gsd_review_broker.cli.context import Context, keepers_connection
from gsd_review_broker.client.connection import Connection, Json


class TokenDesk:
    def __init__(self, options: argparse.Namespace) -> None:
        self.context = Context(options)
        self._options = options

    def new(self, **wanted: str | None) -> Json:
        connection = self._connection()
        if connection is not None:
            return connection.post("/api/tokens", {name: value for name, value in wanted.items() if value is not None})
        from gsd_review_broker.settings.names import person_here

        return self._here(lambda tokens: tokens.new(person_here(), wanted.pop("role"), **wanted))

    def listed(self) -> Json:
        connection = self._connection()
        return connection.get("/api/tokens") if connection else self._here(lambda tokens: tokens.listed())

    def revoke(self, name: str) -> Json:
        connection = self._connection()
        if connection is not None:
            return connection.post("/api/tokens/revoke", {"name": name})
        return self._here(lambda tokens: tokens.revoke(name))

    def _connection(self) -> Connection | None:
        """A broker that was named by its address is asked with the caller's own token; None if none is running."""
        target = self.context.target
        if target.url:
            return self.context.broker.connection
        return keepers_connection(self.context, own_token_first=False)

    def _here(self, do: Callable[[Any], Awaitable[Any]]) -> Json:
        from gsd_review_broker import maintenance
        from gsd_review_broker.git.discovery import find_root
        from gsd_review_broker.settings import config

        root = None if self._options.user else find_root(Path.cwd())
        configuration = config.load(root=root, flags={"db": self._options.db, "config": self._options.config})
        config.refuse_tracked(configuration.database, root)
        return cast("Json", maintenance.with_tokens(configuration, do))
