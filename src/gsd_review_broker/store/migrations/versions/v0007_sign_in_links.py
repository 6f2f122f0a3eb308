"""Links that sign in to the dashboard work on every broker of the database."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "sign_in_links",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("sealed_token", sa.Text(), nullable=False),
        sa.Column("page", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_sign_in_links")),
    )
    op.create_index("ix_sign_in_links_expires_at", "sign_in_links", ["expires_at"], unique=False)
