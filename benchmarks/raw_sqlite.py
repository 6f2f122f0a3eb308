"""The same rows by plain SQL: what a command's commit costs without a broker.

The rows are read back from the broker's database after each step and replayed into a copy of it, which has the
same tables, indexes and content.
"""

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Statement = tuple[str, tuple[Any, ...]]
_MOVE_HEAD = "UPDATE audit_head SET sequence = ?, hash = ? WHERE id = 1"


class RawDatabase:
    """A copy that is written as the broker writes: WAL, synchronous=FULL, one connection."""

    def __init__(self, original: Path, copy: Path) -> None:
        self._connection = sqlite3.connect(copy, isolation_level=None)
        source = read_only(original)
        source.backup(self._connection)
        source.close()
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            self._connection.execute(f"PRAGMA {pragma}")

    def commit(self, statements: list[Statement]) -> None:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        for sql, parameters in statements:
            execute(sql, parameters)
        execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def read_only(path: Path) -> sqlite3.Connection:
    """Never writes and never checkpoints: only the broker may."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
    connection.row_factory = sqlite3.Row
    return connection


@dataclass(slots=True)
class Recorder:
    """Turns the last command's changes to a review into statements that do the same."""

    connection: sqlite3.Connection
    _known: dict[str, Row] = field(default_factory=dict[str, Row])
    _statistics: dict[tuple[Any, ...], Row] = field(default_factory=dict[tuple[Any, ...], Row])

    def __post_init__(self) -> None:
        self._changed_statistics()

    def step(self, review_id: str) -> list[Statement]:
        review = self._rows("SELECT * FROM reviews WHERE id = ?", review_id)[0]
        before = self._known.get(review_id)
        self._known[review_id] = review
        if before is None:
            revisions = self._rows("SELECT * FROM revisions WHERE review_id = ?", review_id)
            statements = [insert("reviews", review), *(insert("revisions", row) for row in revisions)]
        else:
            statements = [_update(review_id, before, review)]
        # Each of a review's events increases its version by one, so the new events are the last ones.
        new = review["version"] - (before["version"] if before else 0)
        events = self._rows("SELECT * FROM events WHERE review_id = ? ORDER BY id DESC LIMIT ?", review_id, new)
        statements += [insert("events", row) for row in reversed(events)]
        statements += self._changed_statistics()
        return [*statements, (_MOVE_HEAD, (events[0]["id"], events[0]["hash"]))]

    def _changed_statistics(self) -> list[Statement]:
        statements: list[Statement] = []
        for table in ("counters", "histogram_buckets"):
            for row in self._rows(f"SELECT * FROM {table}"):
                key = table, row["scope"], row["name"], row.get("key"), row.get("bucket")
                if self._statistics.get(key) != row:
                    self._statistics[key] = row
                    sql, values = insert(table, row)
                    statements.append((sql.replace("INSERT", "INSERT OR REPLACE", 1), values))
        return statements

    def _rows(self, sql: str, *parameters: Any) -> list[Row]:
        return [dict(row) for row in self.connection.execute(sql, parameters)]


def insert(table: str, row: Row) -> Statement:
    places = ", ".join("?" * len(row))
    return f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", tuple(row.values())


def _update(review_id: str, before: Row, after: Row) -> Statement:
    changed = {name: value for name, value in after.items() if value != before[name]}
    columns = ", ".join(f"{name} = ?" for name in changed)
    return f"UPDATE reviews SET {columns} WHERE id = ?", (*changed.values(), review_id)
