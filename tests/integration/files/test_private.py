"""Files of ours in a folder that somebody else filled: nothing is followed, waited for or half written."""

import os
from pathlib import Path

import pytest

import gsd_review_broker
from gsd_review_broker.files import (
    LARGEST_READ,
    UnfitFileError,
    acquire_lock,
    links_in,
    lock_owner,
    locked,
    make_private_folder,
    open_private,
    read_regular,
    write_private,
)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.write_text("mine")
    path.chmod(0o644)
    return path


def unchanged(path: Path) -> bool:
    return path.read_text() == "mine" and path.stat().st_mode & 0o777 == 0o644


def test_a_link_is_not_read_unless_the_path_is_the_users(tmp_path: Path, outside: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(outside)
    with pytest.raises(UnfitFileError, match="is a link"):
        read_regular(link)
    assert read_regular(link, follow_links=True) == b"mine"


def test_a_pipe_a_folder_and_a_large_file_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b" " * (LARGEST_READ + 1))
    (tmp_path / "folder").mkdir()
    for name, why in {"pipe": "not a regular file", "large": "at most 1048576", "folder": "not a regular file"}.items():
        with pytest.raises(UnfitFileError, match=why):
            read_regular(tmp_path / name)
    (tmp_path / "fits").write_bytes(b" " * LARGEST_READ)
    assert len(read_regular(tmp_path / "fits")) == LARGEST_READ


def test_writing_replaces_a_link_and_leaves_no_draft(tmp_path: Path, outside: Path) -> None:
    target = tmp_path / "folder" / "file"
    make_private_folder(target.parent)
    target.symlink_to(outside)
    write_private(target, b"new")
    assert (target.read_bytes(), target.is_symlink(), target.stat().st_mode & 0o777) == (b"new", False, 0o600)
    assert unchanged(outside)
    assert [path.name for path in target.parent.iterdir()] == ["file"]
    target.unlink()
    target.mkdir()
    with pytest.raises(OSError, match="directory"):
        write_private(target, b"new")
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_a_private_file_is_not_opened_through_a_link_and_becomes_its_owners_alone(
    tmp_path: Path, outside: Path
) -> None:
    link, own = tmp_path / "link", tmp_path / "own"
    link.symlink_to(outside)
    with pytest.raises(UnfitFileError):
        open_private(link, os.O_RDWR | os.O_CREAT)
    assert unchanged(outside)
    own.touch(mode=0o666)
    own.chmod(0o666)
    os.close(open_private(own, os.O_RDWR))
    assert own.stat().st_mode & 0o777 == 0o600


def test_every_folder_that_is_made_is_its_owners_alone(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "a" / "b")
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o700, 0o700]


def test_links_on_the_way_are_found(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert list(links_in(tmp_path / "real" / "file", below=tmp_path)) == []
    assert list(links_in(tmp_path / "link" / "file", below=tmp_path)) == [tmp_path / "link"]


def test_a_lock_has_one_holder_and_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = acquire_lock(path)
    assert first is not None
    assert acquire_lock(path) is None
    os.close(first)
    second = acquire_lock(path)
    assert second is not None
    os.close(second)


def test_whoever_asks_for_the_owner_does_not_keep_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert lock_owner(path) is None
    path.write_text('{"pid": 4711}')
    assert lock_owner(path) is None, "no process holds it, so its text does not apply"
    held = acquire_lock(path)
    assert held is not None
    assert lock_owner(path) == 4711
    path.write_text('{"pid": true}')
    assert lock_owner(path) is None
    os.close(held)
    again = acquire_lock(path)
    assert again is not None
    os.close(again)


def test_a_lock_is_not_taken_through_a_link(tmp_path: Path, outside: Path) -> None:
    link = tmp_path / "lock"
    link.symlink_to(outside)
    with pytest.raises(UnfitFileError), locked(link):
        raise AssertionError
    assert lock_owner(link) is None
    assert unchanged(outside)


def test_no_other_place_locks_files() -> None:
    source = Path(gsd_review_broker.__file__).parent
    calls = ("flock(", "lockf(", "msvcrt.locking(")
    lockers = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if any(call in path.read_text("utf-8") for call in calls)
    }
    # The hook only asks whether a lock is held, and is too light to import anything.
    assert lockers == {"files.py", "gate/hook.py"}
