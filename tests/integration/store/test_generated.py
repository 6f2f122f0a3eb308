"""The database that `make bench-large` generates is one that the broker itself could have written."""

from pathlib import Path

from benchmarks.generator import generate

from gsd_review_broker.store import verification


def test_a_generated_database_passes_the_audit(tmp_path: Path) -> None:
    database = tmp_path / "broker.sqlite3"
    generate(database, 300)
    report = verification.verify(database)
    assert not report.problems
    assert report.reviews == 300
