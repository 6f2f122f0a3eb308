"""Finds our running broker; a client refuses one that serves another repository."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from gsd_review_broker.client.connection import Connection, Json, UnreachableError, is_here
from gsd_review_broker.errors import BrokerError, unauthenticated
from gsd_review_broker.git.discovery import plain_root
from gsd_review_broker.settings.locations import DATABASE_NAME, PROJECT_FOLDER, Locations, locate, recorded_url
from gsd_review_broker.settings.runtime_file import Announcement, UntrustedRuntimeFileError, announced, new_challenge

USER = "user"


class Target(NamedTuple):
    """What the caller specified about the broker."""

    locations: Locations
    url: str | None = None
    # Named by its address or its database, not found from the folder.
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
        locations = locate(None if user else _root_of(folder), db=db, config=config, environment=environment)
        if not (address or db or environment.get("BROKER_DB")) and locations.root is not None:
            address = recorded_url(str(locations.root))
        return cls(locations=locations, url=address, is_explicit=bool(address or db or environment.get("BROKER_DB")))

    @property
    def is_elsewhere(self) -> bool:
        """Say whether the broker is on another machine, where it serves its own clone and knows other paths."""
        return self.url is not None and not is_here(self.url)

    def accepts(self, serves: str) -> bool:
        if serves == self.locations.serves or self.is_elsewhere:
            return True
        return self.is_explicit and (self.locations.root is None or serves == USER)


class RunningBroker(NamedTuple):
    """One that answered."""

    connection: Connection
    pid: int
    version: str
    serves: str
    database: str
    started_at: str | None
    # Set for a broker that was found by its runtime file: it proved that it wrote that file.
    process_start: str | None = None


def _root_of(folder: Path) -> Path | None:
    """Return what git says. Where a broker announced itself in an ordinary checkout, git is not started."""
    root = plain_root(folder)
    if root is not None and (root / PROJECT_FOLDER / f"{DATABASE_NAME}.runtime.json").exists():
        return root
    from gsd_review_broker.git.discovery import find_root  # noqa: PLC0415 - it starts processes

    return find_root(folder)


def connect(target: Target, *, token: str | None = None) -> RunningBroker:
    """Connect to the running broker. The token is not sent before the broker is known to be ours."""
    broker = _named(target, token) if target.url else _announced(target)
    if not target.accepts(broker.serves):
        broker.connection.close()
        raise UnreachableError(
            f"the broker at {broker.connection.url} serves {_called(broker.serves)}, not {described(target.locations)}",
            "Start the one that serves this folder with `tandem up`, or name another with --url or --db.",
        )
    broker.connection.token = token
    return broker


def _named(target: Target, token: str | None) -> RunningBroker:
    """Connect to the address that the user gave: the user trusts whatever answers there."""
    connection = Connection(target.url or "", token=token)
    health = connection.get("/healthz")
    if "pid" not in health and health.get("status") == "ok":
        connection.close()
        raise unauthenticated(has_token=token is not None)
    return _answered(connection, health, started_at=None)


def _announced(target: Target) -> RunningBroker:
    try:
        announcement = announced(target.locations.database)
    except UntrustedRuntimeFileError as error:
        raise UnreachableError(f"no broker is running for {described(target.locations)} ({error})") from error
    if announcement is None:
        raise UnreachableError(f"no broker is running for {described(target.locations)}")
    connection = Connection(announcement.url)
    challenge = new_challenge()
    health = connection.get(f"/healthz?challenge={challenge}")
    health = {**_known_of(announcement), **health}
    if not announcement.is_proven_by(health.get("proof"), challenge):
        connection.close()
        raise UnreachableError(
            f"what answers at {connection.url} is not the broker that serves {described(target.locations)}: it does "
            "not know the secret of the runtime file"
        )
    return _answered(connection, health, started_at=announcement.started_at, process_start=announcement.process_start)


def _known_of(announcement: Announcement) -> Json:
    """Return what the broker tells only callers with a token."""
    return {"pid": announcement.pid, "serves": announcement.serves, "database": announcement.database}


def _answered(
    connection: Connection, health: Json, *, started_at: str | None, process_start: str | None = None
) -> RunningBroker:
    try:
        return RunningBroker(
            connection=connection,
            pid=int(health["pid"]),
            version=str(health["version"]),
            serves=str(health["serves"]),
            database=str(health.get("database", "")),
            started_at=started_at,
            process_start=process_start,
        )
    except (KeyError, ValueError, TypeError) as error:
        connection.close()
        raise UnreachableError(f"what answers at {connection.url} is not a broker") from error


def find(target: Target, *, token: str | None = None) -> RunningBroker | None:
    """Return the running broker, if there is one."""
    try:
        return connect(target, token=token)
    except UnreachableError:
        return None


def answering(url: str) -> RunningBroker | None:
    """Find the broker that answers at an address, whatever it serves; None if none does."""
    try:
        connection = Connection(url)
        broker = _answered(connection, connection.get("/healthz"), started_at=None)
    except BrokerError:
        return None
    broker.connection.close()
    return broker


def described(place: Locations) -> str:
    return _called(place.serves)


def _called(serves: str) -> str:
    return "this user" if serves == USER else serves
