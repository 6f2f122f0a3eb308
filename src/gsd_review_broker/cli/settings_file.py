"""Changes one section of a configuration file: read and written as a whole, everything else unchanged."""

import json
from pathlib import Path
from typing import Any, cast

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.files import write_private
from gsd_review_broker.git.discovery import exclude_from_git
from gsd_review_broker.settings import locations


def changed_setting(path: Path, section: str, values: dict[str, Any], *, personal: bool = False) -> bool:
    """False if the file already says so. A file that cannot be read is not touched.

    Git does not see a project's file that is new and `personal`: it is about this machine, and a file that git tracks
    counts for less, because it may have come with the repository."""
    settings = locations.read_settings_file(path, must_exist=False)
    present = settings.get(section, {})
    if not isinstance(present, dict):
        raise BrokerError(Code.CONFLICT, f"{path}: {section} is not an object", "Fix the file first.")
    wanted = {**cast("dict[str, Any]", present), **values}
    if wanted == present:
        return False
    if personal and path != locations.user_file() and not path.exists():
        exclude_from_git(path.parents[1], f"/{locations.PROJECT_FOLDER}/{locations.PROJECT_FILE}")
    _write(path, json.dumps({**settings, section: wanted}, indent=2) + "\n")
    return True


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    write_private(path, text.encode(), mode=mode)
