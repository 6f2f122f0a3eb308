"""Shared by both actors: the broker's tools, a pace, and output. Each actor is a process of its own."""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsd_review_broker.cli.git import changes
from gsd_review_broker.client.connection import Connection, Json

WAIT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Actor:
    """The stage passes its settings in the environment."""

    name: str
    folder: Path
    broker: Connection
    pause: float

    @classmethod
    def from_environment(cls, name: str) -> "Actor":
        return cls(
            name=name,
            folder=Path(os.environ["TANDEM_DEMO_FOLDER"]),
            broker=Connection(os.environ["BROKER_URL"]),
            pause=float(os.environ["TANDEM_DEMO_PAUSE"]),
        )

    def call(self, tool: str, **arguments: Any) -> Json:
        return self.broker.call(tool, arguments)

    def say(self, text: str, *, details: list[str] | None = None, chapter: str | None = None) -> None:
        """Tell the narrator (the parent process), then pause for reading. It comes before the action, so that no answer
        precedes it.
        """
        line = {"who": self.name, "text": text, "details": details or [], "chapter": chapter}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        time.sleep(self.pause)

    def diff_to(self, file: str, content: str) -> str:
        """The output of `git diff` for this content; the file is restored afterwards."""
        path = self.folder / file
        before = path.read_bytes()
        path.write_text(content, "utf-8")
        try:
            with changes.opened(self.folder) as tree:
                return changes.worktree(tree).diff.decode("utf-8")
        finally:
            path.write_bytes(before)

    def status(self, review_id: str, since: int | None = None) -> Json:
        """Waits, in slices, until something has changed."""
        while True:
            arguments = {} if since is None else {"since": since}
            status = self.call(
                "get_review_status", review_id=review_id, wait=True, wait_seconds=WAIT_SECONDS, **arguments
            )
            if status["changed"]:
                return status
            since = status["version"]


def short(digest: str | None) -> str:
    return (digest or "no digest")[:19] + "…"
