"""The gate: reviewed changes with their records, overrides, landed commits."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "reviewed_changes",
        sa.Column("review_id", sa.String(length=32), nullable=False),
        sa.Column("revision", _NUMBER, nullable=False),
        sa.Column("digest", sa.String(length=80), nullable=False),
        sa.Column("repository", sa.String(length=64), nullable=True),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("records", sa.LargeBinary(), nullable=False),
        sa.Column("proposer", sa.String(length=256), nullable=True),
        sa.Column("reviewer", sa.String(length=256), nullable=True),
        sa.Column("approved_at", sa.BigInteger(), nullable=True),
        sa.Column("receipt", sa.Text(), nullable=True),
        sa.Column("landed_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("review_id", name=op.f("pk_reviewed_changes")),
    )
    never_landed = sa.text("approved_at IS NOT NULL AND landed_at IS NULL")
    op.create_index(
        "ix_reviewed_changes_never_landed",
        "reviewed_changes",
        ["approved_at"],
        unique=False,
        sqlite_where=never_landed,
        postgresql_where=never_landed,
    )
    op.create_table(
        "approved_paths",
        sa.Column("path_key", sa.String(length=64), nullable=False),
        sa.Column("old_id", sa.String(length=64), nullable=False),
        sa.Column("review_id", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("path_key", "old_id", "review_id", name=op.f("pk_approved_paths")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "gate_overrides",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("repository", sa.String(length=64), nullable=True),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("person", sa.String(length=256), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gate_overrides")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_gate_overrides_until", "gate_overrides", ["until"], unique=False)
    op.create_table(
        "landed_commits",
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("commit_id", sa.String(length=64), nullable=False),
        sa.Column("branch", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(length=80), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("because", sa.String(length=32), nullable=True),
        sa.Column("reviews", sa.Text(), nullable=False),
        sa.Column("override_id", _NUMBER, nullable=True),
        sa.Column("landed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("folder", "commit_id", name=op.f("pk_landed_commits")),
    )
    op.create_index("ix_landed_commits_landed_at", "landed_commits", ["landed_at"], unique=False)
    without = sa.text("reviews = '[]'")
    op.create_index(
        "ix_landed_commits_without_approval",
        "landed_commits",
        ["landed_at"],
        unique=False,
        sqlite_where=without,
        postgresql_where=without,
    )
