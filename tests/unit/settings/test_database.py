"""The database as a value: what its callers derive from it."""

import os
from pathlib import Path

from gsd_review_broker.settings.state_files import Database


def test_a_database_is_named_by_its_path_and_by_its_short_name(tmp_path: Path) -> None:
    database = Database(tmp_path / "x.sqlite3")
    assert (str(database), database.name) == (str(tmp_path / "x.sqlite3"), "x.sqlite3")
    assert database == Database(tmp_path / "x.sqlite3")


def test_every_path_that_leads_to_a_database_gives_the_same_key(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    key = Database(tmp_path / "real" / "x").key
    assert Database(tmp_path / "link" / "x").key == key
    assert Database(tmp_path / "real" / "y").key != key


def test_the_key_is_the_one_that_earlier_versions_used_for_their_files() -> None:
    """A broker that an earlier version started has its log and its pool under this name."""
    assert Database(Path("/srv/no-such-folder/x.sqlite3")).key == "7731a009c82e0a6b"


def test_a_path_that_is_not_text_has_a_key(tmp_path: Path) -> None:
    assert len(Database(tmp_path / os.fsdecode(b"\xff.sqlite3")).key) == len(Database(tmp_path / "x").key)


def test_a_database_is_inside_every_folder_above_it_and_in_no_other(tmp_path: Path) -> None:
    database = Database(tmp_path / "project" / ".planning" / "x")
    assert database.is_inside(tmp_path / "project")
    assert not database.is_inside(tmp_path / "pro")
    assert not database.is_inside(database.path)
    assert not database.is_inside(None)
