"""Findings get the place in which their reviewer gave them; histograms are kept bucket by bucket; reviewers name
their broker.

SQLite checks neither widths nor collations, so only what it stores changes here. Each table that changes is made again
and copied: its definition then reads as in a new database.
"""

import json
import struct
from collections.abc import Iterator, Sequence

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    _place_findings(op.get_bind())
    _spread_histograms(op.get_bind())
    _name_brokers(op.get_bind())


def _place_findings(connection: sa.Connection) -> None:
    positions = list(_positions(connection))
    op.drop_index("ix_findings_review_id", "findings")
    op.rename_table("findings", "findings_before")
    names = _create_findings()
    connection.execute(sa.text("CREATE TEMPORARY TABLE placed (id TEXT PRIMARY KEY, position INTEGER NOT NULL)"))
    if positions:
        connection.execute(sa.text("INSERT INTO placed VALUES (:id, :position)"), positions)
    # The names are constants of this file.
    columns = ", ".join(names)
    taken = ", ".join("placed.position" if name == "position" else f"findings_before.{name}" for name in names)
    connection.execute(
        sa.text(f"INSERT INTO findings ({columns}) SELECT {taken} FROM findings_before JOIN placed USING (id)")  # noqa: S608 - the names are our own tables and columns
    )
    connection.execute(sa.text("DROP TABLE placed"))
    op.drop_table("findings_before")
    op.create_index("ix_findings_review_id", "findings", ["review_id", "position"], unique=False)


def _positions(connection: sa.Connection) -> Iterator[dict[str, object]]:
    """The verdicts' events record the order in which findings were given. Findings without an event come last."""
    rows = connection.execute(sa.text("SELECT review_id, id FROM findings ORDER BY review_id, created_at, id"))
    stored: dict[str, list[str]] = {}
    for review_id, finding_id in rows:
        stored.setdefault(review_id, []).append(finding_id)
    for review_id, known in stored.items():
        in_order = dict.fromkeys(_finding_ids_in_order(connection, review_id))
        order = [*(one for one in in_order if one in known), *(one for one in known if one not in in_order)]
        for position, finding_id in enumerate(order, 1):
            yield {"id": finding_id, "position": position}


def _finding_ids_in_order(connection: sa.Connection, review_id: str) -> Iterator[str]:
    verdicts = connection.execute(
        sa.text(
            "SELECT metadata FROM events WHERE review_id = :review_id "
            "AND event_type IN ('verdict_submitted', 'verdict_comment') ORDER BY id"
        ),
        {"review_id": review_id},
    )
    for (metadata,) in verdicts:
        for finding in json.loads(metadata).get("findings", ()):
            yield finding["finding_id"]


def _create_findings() -> Sequence[str]:
    columns: list[sa.Column[object]] = [
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("review_id", sa.String(length=32), nullable=False),
        sa.Column("position", _NUMBER, nullable=False),
        sa.Column("raised_by", sa.String(length=256), nullable=False),
        sa.Column("raised_in_round", sa.Integer(), nullable=False),
        sa.Column("raised_at_revision", sa.Integer(), nullable=False),
        sa.Column("times_raised", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=True),
        sa.Column("line_start", _NUMBER, nullable=True),
        sa.Column("line_end", _NUMBER, nullable=True),
        sa.Column("side", sa.String(length=32), nullable=False),
        sa.Column("severity", sa.String(length=32), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("suggestion", sa.Text(), nullable=True),
        sa.Column("confidence", sa.Float(), nullable=True),
        sa.Column("anchor", sa.String(length=32), nullable=False),
        sa.Column("anchor_text", sa.Text(), nullable=True),
        sa.Column("disposition", sa.String(length=32), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
    ]
    op.create_table(
        "findings",
        *columns,
        sa.ForeignKeyConstraint(["review_id"], ["reviews.id"], name=op.f("fk_findings_review_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_findings")),
    )
    return [column.name for column in columns]


def _spread_histograms(connection: sa.Connection) -> None:
    """Write one row for each bucket instead of one value for all.

    Only the whole sum, least and most of a histogram are known. They are stored where they give the same whole.
    """
    op.create_table(
        "histogram_buckets",
        sa.Column("scope", sa.String(length=256), nullable=False),
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("bucket", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("least", sa.BigInteger(), nullable=False),
        sa.Column("most", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "name", "bucket", name=op.f("pk_histogram_buckets")),
        sqlite_with_rowid=False,
    )
    stored = connection.execute(sa.text("SELECT scope, name, total, least, most, buckets FROM histograms"))
    rows = [row for scope, name, *values in stored for row in _bucket_rows(scope, name, *values)]
    if rows:
        connection.execute(
            sa.text("INSERT INTO histogram_buckets VALUES (:scope, :name, :bucket, :count, :total, :least, :most)"),
            rows,
        )
    op.drop_table("histograms")


def _bucket_rows(
    scope: str, name: str, total: int, least: int, most: int, buckets: bytes
) -> Iterator[dict[str, object]]:
    counts = {bucket: count for bucket, (count,) in enumerate(struct.iter_unpack("<I", buckets)) if count}
    for bucket, count in counts.items():
        first = bucket == min(counts)
        last = bucket == max(counts)
        yield {
            "scope": scope,
            "name": name,
            "bucket": bucket,
            "count": count,
            "total": total if first else 0,
            "least": least if first else most,
            "most": most if last else least,
        }


def _name_brokers(connection: sa.Connection) -> None:
    """Record each reviewer's broker. The existing rows were written by brokers without a name."""
    for name in ("ended_at", "started_at"):
        op.drop_index(f"ix_reviewers_{name}", "reviewers")
    op.rename_table("reviewers", "reviewers_before")
    columns: list[sa.Column[object]] = [
        sa.Column("id", sa.String(length=256), nullable=False),
        sa.Column("display_name", sa.String(length=256), nullable=False),
        sa.Column("agent", sa.String(length=32), nullable=False),
        sa.Column("model", sa.String(length=256), nullable=True),
        sa.Column("project", sa.String(length=256), nullable=True),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("host", sa.String(length=256), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("process_start", sa.String(length=256), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("broker_id", sa.String(length=256), nullable=True),
        sa.Column("drained_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("end_reason", sa.String(length=32), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("reviews_completed", sa.Integer(), nullable=False),
        sa.Column("reviews_approved", sa.Integer(), nullable=False),
        sa.Column("review_milliseconds", sa.BigInteger(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=True),
        sa.Column("output_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cost_usd", sa.Float(), nullable=True),
    ]
    op.create_table("reviewers", *columns, sa.PrimaryKeyConstraint("id", name=op.f("pk_reviewers")))
    kept = ", ".join(column.name for column in columns if column.name != "broker_id")
    connection.execute(sa.text(f"INSERT INTO reviewers ({kept}) SELECT {kept} FROM reviewers_before"))  # noqa: S608 - the names are our own tables and columns
    op.drop_table("reviewers_before")
    op.create_index("ix_reviewers_ended_at", "reviewers", ["ended_at", "started_at"], unique=False)
    op.create_index("ix_reviewers_started_at", "reviewers", ["started_at"], unique=False)
