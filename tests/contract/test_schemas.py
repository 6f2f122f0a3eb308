"""The script of the newest schema is what the migrations make: otherwise the broker refuses its own files."""

from gsd_review_broker.store import schema
from tests.contract.schemas import newest_script, newest_text, newest_version


def test_the_newest_script_is_the_one_that_the_store_expects() -> None:
    assert newest_version() == schema.HEAD


def test_a_new_database_holds_what_the_migrations_make() -> None:
    """`python -m tests.contract` writes the script."""
    assert newest_script().read_text() == newest_text()
