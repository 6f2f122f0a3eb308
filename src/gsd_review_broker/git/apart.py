"""An empty repository beside the real one.

git that runs in it sees the real one's objects and nothing else of it: no configuration, attributes, replace refs,
grafts, hooks or shallow boundary. What it writes goes to the scratch folder.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from gsd_review_broker.git.command import alternate


@dataclass(frozen=True, slots=True)
class Apart:
    folder: Path
    object_format: str
    environment: dict[str, str]

    @property
    def index(self) -> Path:
        return self.folder / "index"


def make_apart(folder: Path, *, objects: str, object_format: str) -> Apart:
    """`objects` is the real repository's object store."""
    repository = make_empty_repository(folder / "git", object_format)
    environment = {
        "GIT_DIR": str(repository),
        "GIT_INDEX_FILE": str(folder / "index"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": alternate(objects),
        # The folder above is not a repository, whatever lies there.
        "GIT_CEILING_DIRECTORIES": os.fspath(folder),
    }
    return Apart(folder, object_format, environment)


def make_empty_repository(folder: Path, object_format: str, *, attributes: str = "") -> Path:
    for name in ("refs", "objects", "info"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    if attributes:
        (folder / "info" / "attributes").write_text(attributes)
    is_usual = object_format == "sha1"
    special = "" if is_usual else f"[extensions]\n\tobjectformat = {object_format}\n"
    (folder / "config").write_text(f"[core]\n\trepositoryformatversion = {int(not is_usual)}\n\tbare = true\n{special}")
    return folder
