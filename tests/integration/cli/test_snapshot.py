"""Files of a work tree are put back as they were, whatever was made of them."""

from pathlib import Path

from gsd_review_broker.cli.commands.apply import WorkTreeSnapshot

PATHS = ("text", "program", "link", "new/folder/file", "gone")


def made(root: Path) -> dict[str, object]:
    """Everything below a folder: the content or the target, and the mode."""
    return {
        str(path.relative_to(root)): (
            str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None,
            path.lstat().st_mode,
        )
        for path in sorted(root.rglob("*"))
    }


def test_every_kind_of_change_is_taken_back(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"one\r\n")
    (tmp_path / "program").write_text("#!/bin/sh\n")
    (tmp_path / "program").chmod(0o755)
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "gone").write_text("x")
    before = made(tmp_path)
    kept = WorkTreeSnapshot(tmp_path, PATHS)
    (tmp_path / "text").write_bytes(b"two")
    (tmp_path / "program").unlink()
    (tmp_path / "program").symlink_to("text")
    (tmp_path / "link").unlink()
    (tmp_path / "link").write_text("a file now")
    (tmp_path / "new" / "folder").mkdir(parents=True)
    (tmp_path / "new" / "folder" / "file").write_text("new")
    (tmp_path / "gone").unlink()
    assert kept.put_back() is True
    assert made(tmp_path) == before
    assert kept.put_back() is True


def test_a_file_that_cannot_be_put_back_is_told(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("one")
    kept = WorkTreeSnapshot(tmp_path, ("text",))
    (tmp_path / "text").unlink()
    (tmp_path / "text").mkdir()
    assert kept.put_back() is False
