"""A histogram of many values is one row, and new values are kept bucket by bucket beside it."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "histograms",
        sa.Column("scope", sa.String(length=256), nullable=False),
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("least", sa.BigInteger(), nullable=False),
        sa.Column("most", sa.BigInteger(), nullable=False),
        sa.Column("buckets", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "name", name=op.f("pk_histograms")),
    )
