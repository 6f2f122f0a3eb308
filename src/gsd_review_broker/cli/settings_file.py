"""Changing one section of a configuration file: read whole, written whole, everything else as it was."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any, cast

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.settings import locations


def changed_setting(path: Path, section: str, values: dict[str, Any]) -> bool:
    """False if the file says so already. A file that cannot be read is not touched."""
    settings = locations.read_settings_file(path, must_exist=False)
    present = settings.get(section, {})
    if not isinstance(present, dict):
        raise BrokerError(Code.CONFLICT, f"{path}: {section} is not an object", "Mend the file first.")
    wanted = {**cast("dict[str, Any]", present), **values}
    if wanted == present:
        return False
    _write(path, json.dumps({**settings, section: wanted}, indent=2) + "\n")
    return True


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - the descriptor is private to its owner
            file.write(text)
        if path.exists():
            Path(draft).chmod(path.stat().st_mode & 0o777)
        else:
            Path(draft).chmod(0o644 & ~_umask())
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
