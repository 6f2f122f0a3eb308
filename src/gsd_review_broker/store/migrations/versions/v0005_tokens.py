"""Tokens: who may call, as what, and until when."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("name_key", sa.Text().with_variant(sa.String(length=256), "sqlite"), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.Column("project", sa.String(length=256), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.String(length=256), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_tokens")),
    )
    op.create_index("ix_tokens_created_at", "tokens", ["created_at"], unique=False)
    not_revoked = sa.text("revoked_at IS NULL")
    op.create_index(
        "ix_tokens_name_key",
        "tokens",
        ["name_key"],
        unique=True,
        sqlite_where=not_revoked,
        postgresql_where=not_revoked,
    )
