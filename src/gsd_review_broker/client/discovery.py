"""Which broker is ours, and is it there: a client refuses one that serves something else."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gsd_review_broker.client.connection import Connection, UnreachableError
from gsd_review_broker.errors import BrokerError
from gsd_review_broker.git.checkout import find_root
from gsd_review_broker.settings.locations import Locations, locate
from gsd_review_broker.settings.runtime_file import runtime_path

USER = "user"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What the caller said about the broker it wants."""

    locations: Locations
    url: str | None = None
    # Named by its address or its database, not found by the folder.
    is_explicit: bool = False

    @classmethod
    def of(
        cls,
        folder: Path,
        *,
        url: str | None = None,
        db: str | None = None,
        config: str | None = None,
        user: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> "Target":
        environment = os.environ if environment is None else environment
        address = url or environment.get("BROKER_URL")
        locations = locate(None if user else find_root(folder), db=db, config=config, environment=environment)
        return cls(locations=locations, url=address, is_explicit=bool(address or db or environment.get("BROKER_DB")))

    def accepts(self, serves: str) -> bool:
        if serves == self.locations.serves:
            return True
        return self.is_explicit and (self.locations.root is None or serves == USER)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningBroker:
    """One that answered."""

    connection: Connection
    pid: int
    version: str
    serves: str
    database: str
    started_at: str | None


def connect(target: Target, *, token: str | None = None) -> RunningBroker:
    """The running broker, or UnreachableError."""
    announced = None if target.url else read_runtime_file(target.locations.database)
    address = target.url or (announced or {}).get("url")
    if not isinstance(address, str):
        raise UnreachableError(f"no broker runs for {described(target.locations)}")
    connection = _connection(address, token, is_given=target.url is not None)
    try:
        health = connection.get("/healthz")
        broker = RunningBroker(
            connection=connection,
            pid=int(health["pid"]),
            version=str(health["version"]),
            serves=str(health["serves"]),
            database=str(health.get("database", "")),
            started_at=str(announced["started_at"]) if announced and "started_at" in announced else None,
        )
    except (KeyError, ValueError, TypeError) as error:
        connection.close()
        raise UnreachableError(f"what answers at {connection.url} is not a broker") from error
    if not target.accepts(broker.serves):
        connection.close()
        raise UnreachableError(
            f"the broker at {connection.url} serves {_named(broker.serves)}, not {described(target.locations)}",
            "Start the one that serves this folder with `tandem up`, or name another with --url or --db.",
        )
    return broker


def _connection(address: str, token: str | None, *, is_given: bool) -> Connection:
    try:
        return Connection(address, token=token)
    except BrokerError as error:
        if is_given:
            raise
        raise UnreachableError(f"the runtime file names no address of a broker: {error.message}") from error


def find(target: Target, *, token: str | None = None) -> RunningBroker | None:
    """The running broker, if there is one."""
    try:
        return connect(target, token=token)
    except UnreachableError:
        return None


def read_runtime_file(database: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(runtime_path(database).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", content) if isinstance(content, dict) else None


def described(place: Locations) -> str:
    return _named(place.serves)


def _named(serves: str) -> str:
    return "this user" if serves == USER else serves
