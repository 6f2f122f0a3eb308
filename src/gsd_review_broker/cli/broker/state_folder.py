"""The files of a background broker in the platform's state folder."""

from pathlib import Path
from typing import NamedTuple

from gsd_review_broker.settings import locations
from gsd_review_broker.settings.state_files import Database


class Files(NamedTuple):
    log: Path
    pid: Path
    lock: Path
    # Exists after `tandem down`, until a broker is started again.
    stopped: Path
    # The port of its first start, where nobody chose one.
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
