"""The files of a background broker in the platform's state folder, and the port of a broker where the user chose none.

The first project of a user has the default port. Every other project has a port of its own, which follows from the name
of its database, so that its address stays the same from one start to the next.
"""

import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

from gsd_review_broker.files import read_regular, write_private
from gsd_review_broker.settings import locations
from gsd_review_broker.settings.state_files import Database


class Files(NamedTuple):
    log: Path
    pid: Path
    lock: Path
    # Exists after `tandem down`, until a broker is started again.
    stopped: Path
    # The port of its first start, where the user chose none.
    port: Path

    @classmethod
    def of(cls, database: Database) -> "Files":
        name = database.key
        folder = locations.state_folder() / "brokers"
        return cls(
            log=folder / f"{name}.log",
            pid=folder / f"{name}.pid",
            lock=folder / f"{name}.lock",
            stopped=folder / f"{name}.stopped",
            port=folder / f"{name}.port",
        )


# Below the ports that systems give to outgoing connections.
_OWN = range(18_321, 28_321)
_MOST_TRIALS = 20
ANY = 0


def candidates(database: Database) -> Iterator[int]:
    """Yield the best port first; the last one is any free port."""
    yield usual(database)
    first = _own(database)
    yield from (_OWN[(first - _OWN.start + step) % len(_OWN)] for step in range(_MOST_TRIALS))
    yield ANY


def usual(database: Database) -> int:
    """Return the port that this database's broker had at its first start, or will try first."""
    remembered = _port_in(Files.of(database).port)
    if remembered is not None:
        return remembered
    return _own(database) if _is_taken_by_another(locations.DEFAULT_PORT) else locations.DEFAULT_PORT


def remember(database: Database, port: int) -> None:
    """Store the port of the first start; a later start with another port does not change it."""
    path = Files.of(database).port
    if _port_in(path) is None:
        write_private(path, json.dumps({"port": port, "database": str(database)}).encode())


def can_listen(port: int) -> bool:
    with socket.socket() as trial:
        if sys.platform != "win32":
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _own(database: Database) -> int:
    return _OWN[int(database.key, 16) % len(_OWN)]


def _is_taken_by_another(port: int) -> bool:
    folder = locations.state_folder() / "brokers"
    return any(_port_in(path) == port and _is_there(path) for path in folder.glob("*.port"))


def _port_in(path: Path) -> int | None:
    port = _read(path).get("port")
    is_port = isinstance(port, int) and not isinstance(port, bool) and 0 < port <= 65_535  # noqa: PLR2004 - the largest port
    return port if is_port else None


def _is_there(path: Path) -> bool:
    database = str(_read(path).get("database", ""))
    return "://" in database or os.path.exists(database)  # noqa: PTH110 - it may be empty


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_regular(path))
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", content) if isinstance(content, dict) else {}
