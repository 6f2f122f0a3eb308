"""Copies closed reviews from PostgreSQL into an archive, which is a SQLite file."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import sqlalchemy as sa

from gsd_review_broker.domain.model import Milliseconds, ReviewId
from gsd_review_broker.errors import BrokerError, Code, StartError
from gsd_review_broker.files.private import make_private_folder
from gsd_review_broker.ports.store import Reader
from gsd_review_broker.store.reads import SqlReader
from gsd_review_broker.store.sqlite import archive
from gsd_review_broker.store.statements import Values

# A review, its version, and its rows in each table.
Copy = tuple[ReviewId, int, dict[sa.Table, Sequence[Values]]]


def closed_rows(reader: Reader, before: Milliseconds) -> list[Copy]:
    statements = cast("SqlReader", reader).statements
    batch = archive.closed_reviews(statements, before)
    return [(review_id, version, archive.rows_of(statements, review_id)) for review_id, version in batch.items()]


def write(target: Path, copies: Sequence[Copy]) -> None:
    try:
        make_private_folder(target.parent)
        with archive.opened_archive(target) as connection:
            archive.copy(((review_id, rows) for review_id, _, rows in copies), connection)
    except (OSError, sqlite3.Error, StartError) as error:
        raise BrokerError(Code.UNAVAILABLE, str(error), "Nothing was moved.") from error
