"""What a broker that was killed in the middle of a check left behind."""

import os
import time
from pathlib import Path

import pytest

from gsd_review_broker.git.objects import STALE_SECONDS, make_scratch, prefix_of, remove_stale


def left_behind(place: Path, name: str, *, age: float) -> Path:
    folder = place / name
    (folder / "objects").mkdir(parents=True)
    (folder / "objects" / "index").write_text("x")
    os.utime(folder, times=(time.time() - age,) * 2)
    return folder


def test_what_is_old_and_our_own_is_removed_and_nothing_else(tmp_path: Path) -> None:
    old, new = STALE_SECONDS + 60, STALE_SECONDS - 60
    stale = left_behind(tmp_path, "tandem-git-1-abc", age=old)
    kept = [
        left_behind(tmp_path, "tandem-git-2-abc", age=new),
        left_behind(tmp_path, "tandem-demo-abc", age=old),
        left_behind(tmp_path, "another", age=old),
    ]
    link = tmp_path / "tandem-git-3-abc"
    link.symlink_to(kept[2])
    os.utime(link, times=(time.time() - old,) * 2, follow_symlinks=False)
    remove_stale(tmp_path)
    assert not stale.exists()
    assert link.is_symlink()
    assert all((folder / "objects" / "index").exists() for folder in kept)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_what_another_user_left_behind_is_kept(tmp_path: Path) -> None:
    theirs = left_behind(tmp_path, "tandem-git-1-abc", age=STALE_SECONDS + 60)
    os.chown(theirs, 12345, 12345)
    remove_stale(tmp_path)
    assert theirs.exists()


def test_a_place_that_is_not_there_is_nothing_to_clean(tmp_path: Path) -> None:
    remove_stale(tmp_path / "nowhere")


def test_a_scratch_folder_is_private_and_names_its_process() -> None:
    scratch = make_scratch()
    try:
        assert scratch.name.startswith(prefix_of(os.getpid()))
        assert scratch.stat().st_mode & 0o077 == 0
    finally:
        scratch.rmdir()
