"""State files that came with a repository. Separate from their names, because front ends may not call git."""

import shlex
from pathlib import Path

from gsd_review_broker.errors import StartError
from gsd_review_broker.git.discovery import tracked_among
from gsd_review_broker.settings.database import Database
from gsd_review_broker.settings.state_files import state_files


def refuse_tracked(database: Database, root: Path | None) -> None:
    """A database that came with the repository contains approvals that nobody here gave."""
    if root is None or not database.is_inside(root):
        return
    for path in tracked_among(root, state_files(database)):
        raise StartError(
            f"git tracks {path}, or does not say: it may have come with the repository, and what it holds cannot be "
            f"believed. If it is yours, run `git rm --cached {shlex.quote(str(path))}`; otherwise move it away, or use "
            "another database with --db."
        )
