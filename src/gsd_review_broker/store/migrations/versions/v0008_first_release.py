"""The first schema that was released: what its script makes.

On PostgreSQL databases begin with the tables of the version that makes them, so this runs on SQLite alone.
"""

from alembic import op

from gsd_review_broker.store.schema import statements_of

# Earlier versions were never released.
revision = "0008"
down_revision = None


def upgrade() -> None:
    for statement in statements_of(revision):
        # Alembic keeps the table of the version itself.
        if "alembic_version" not in statement:
            op.execute(statement)
