"""Work on a whole database, with or without a broker: verifying, exporting, pruning."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gsd_review_broker.errors import StartError
from gsd_review_broker.service.wire.reviews import Pruned
from gsd_review_broker.settings.config import Configuration
from gsd_review_broker.settings.database import Database
from gsd_review_broker.store.sqlite import verification


def verify(database: Database, archives: Sequence[Path] = ()) -> verification.VerificationReport:
    return verification.verify(database.path, archives)


def export(database: Database) -> Iterator[dict[str, Any]]:
    return verification.export(database.path)


def prune(configuration: Configuration, closed_before: str, report: Callable[[Pruned], None]) -> None:
    """Takes the database's lock, as a broker that serves nobody, so a running broker is never disturbed."""

    # Imported here: verifying and exporting need no server.
    from gsd_review_broker.app import Application  # noqa: PLC0415

    async def run() -> None:
        application = Application(configuration, port=0)
        application.store.open()
        try:
            more = True
            while more:
                turn = await application.broker.retention.prune(closed_before)
                report(turn)
                more = turn["more"]
        finally:
            await application.store.close()

    if not configuration.database.path.is_file():
        raise StartError(f"there is no database {configuration.database}; give its path with --db.")
    asyncio.run(run())
