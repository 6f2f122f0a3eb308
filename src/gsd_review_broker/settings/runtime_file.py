"""How clients find the broker: a small file beside its database, there while it runs."""

import json
import os
from pathlib import Path

from gsd_review_broker import __version__


def runtime_path(database: Path) -> Path:
    return database.with_name(database.name + ".runtime.json")


class RuntimeFile:
    def __init__(self, database: Path, *, url: str, serves: str, started_at: str) -> None:
        self._path = runtime_path(database)
        self._content = {
            "url": url,
            "mcp": f"{url}/mcp",
            "pid": os.getpid(),
            "version": __version__,
            "serves": serves,
            "database": str(database),
            "started_at": started_at,
        }

    @property
    def url(self) -> str:
        return str(self._content["url"])

    @property
    def serves(self) -> str:
        return str(self._content["serves"])

    def write(self) -> None:
        """Whole or not at all, readable by its owner alone."""
        draft = self._path.with_name(self._path.name + f".{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - the descriptor carries the mode
            json.dump(self._content, file)
        draft.replace(self._path)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
