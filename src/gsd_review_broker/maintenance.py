"""What is done to a database as a whole, with or without a broker: proving it, exporting it, pruning it."""

import asyncio
from collections.abc import Callable

from gsd_review_broker.errors import StartError
from gsd_review_broker.service.wire.reviews import Pruned
from gsd_review_broker.settings.config import Configuration
from gsd_review_broker.store.sqlite.verification import VerificationReport, export, verify

__all__ = ["VerificationReport", "export", "prune", "verify"]


def prune(configuration: Configuration, closed_before: str, said: Callable[[Pruned], None]) -> None:
    """As a broker that serves nobody: the database's lock is taken, so a running one is never disturbed."""

    # Imported here: proving and exporting need no server.
    from gsd_review_broker.app import Application  # noqa: PLC0415

    async def run() -> None:
        application = Application(configuration, port=0)
        application.store.open()
        try:
            more = True
            while more:
                turn = await application.broker.retention.prune(closed_before)
                said(turn)
                more = turn["more"]
        finally:
            await application.store.close()

    if not configuration.database.is_file():
        raise StartError(f"there is no database {configuration.database}; give its path with --db.")
    asyncio.run(run())
