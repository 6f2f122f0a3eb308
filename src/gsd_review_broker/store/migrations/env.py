"""Alembic's entry point: the broker passes its own connection and transaction."""

from alembic import context

from gsd_review_broker.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # The caller's transaction holds the whole upgrade.
    transactional_ddl=False,
)
context.run_migrations()
