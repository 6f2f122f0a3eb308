"""What `tandem install` wrote into this work tree. It is not part of a change that is proposed.

The receipts are read as plain JSON, because this runs before every proposal and must be light.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsd_review_broker.settings import locations


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledFile:
    path: Path
    is_whole: bool
    """Everything in which it differs from HEAD is ours. Otherwise others have changed the same file."""


def installed_files(root: Path) -> list[InstalledFile]:
    """Those that are not meant to be shared."""
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    folder = locations.state_folder() / "installed"
    return [file for path in sorted(folder.glob(f"*-project-{name}.json")) for file in _listed(path, root)]


def _listed(receipt: Path, root: Path) -> Iterator[InstalledFile]:
    try:
        values: Any = json.loads(receipt.read_bytes())
        records = [(Path(record["path"]), record) for record in values["files"]]
        excluded, is_shared = set(values.get("excluded", ())), bool(values.get("shared"))
    except (OSError, ValueError, KeyError, TypeError):
        # `tandem uninstall` reports a damaged receipt.
        return
    for path, record in records:
        if not path.is_relative_to(root):
            continue
        # The first form of a receipt names `created` for some files only.
        is_new = record["created"] if "created" in record else record.get("prior") is None
        if f"/{path.relative_to(root).as_posix()}" in excluded or (is_new and not is_shared):
            yield InstalledFile(path=path, is_whole=True)
        elif not is_shared:
            yield InstalledFile(path=path, is_whole=_is_as_written(path, record))


def _is_as_written(path: Path, record: Any) -> bool:
    try:
        content = path.read_bytes()
    except OSError:
        return True
    return hashlib.sha256(content).hexdigest() in {*record.get("states", ()), *record.get("digests", ())}
