"""GSD's active plans as they are in the main work tree, which all worktrees share, also where git ignores them."""

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from gsd_review_broker.domain.gate.plans import PlanVersion, current_phase, is_of_phase, unfinished_plans
from gsd_review_broker.domain.gate.records import Entry
from gsd_review_broker.domain.gate.request import plan_line
from gsd_review_broker.files.private import UnfitFileError, read_regular, read_with_status
from gsd_review_broker.settings.gate import read_policy

_PLANNING = ".planning"
_SHA1_LENGTH = 40
_MOST_PLANS = 200
_WORKSTREAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def required_plans(known: Mapping[str, str], commit: str) -> bytes:
    """What the hook says about them; nothing unless the policy holds code back. `commit` is any of the repository."""
    root = known.get("root")
    policy = read_policy(known.get("project_file"), known.get("user_file"))
    if not root or not policy.plan_first:
        return b""
    return b"".join(map(plan_line, plan_versions(Path(root), active_plans(Path(root)), commit)))


def active_plans(root: Path) -> list[str]:
    """Paths below the root. Where GSD names no current phase, all plans without a summary count."""
    base = _base(root)
    phase = current_phase(_text(base / "STATE.md"))
    folders = [name for name in _names(base / "phases") if phase is None or is_of_phase(name, phase)]
    paths = [
        base / "phases" / folder / name
        for folder in folders
        for name in unfinished_plans(_names(base / "phases" / folder))
    ]
    return [path.relative_to(root).as_posix() for path in paths[:_MOST_PLANS]]


def plan_versions(root: Path, names: Iterable[str], commit: str) -> list[PlanVersion]:
    kind = "sha1" if len(commit) == _SHA1_LENGTH else "sha256"
    return [PlanVersion(path=os.fsencode(name), entries=_entries(root / name, kind)) for name in names]


def _entries(path: Path, kind: str) -> tuple[Entry, ...]:
    """As git would store it. No filter of git's is run, since a repository's configuration may name any program."""
    try:
        content, status = read_with_status(path)
    except (OSError, UnfitFileError):
        return ()
    mode = b"100755" if status.st_mode & stat.S_IXUSR else b"100644"
    contents = dict.fromkeys((content, content.replace(b"\r\n", b"\n")))
    return tuple(Entry(mode, _object_id(one, kind)) for one in contents)


def _object_id(content: bytes, kind: str) -> bytes:
    total = hashlib.new(kind, b"blob %d\0" % len(content) + content, usedforsecurity=False)
    return total.hexdigest().encode("ascii")


def _base(root: Path) -> Path:
    """GSD's folder, or that of its active workstream."""
    planning = root / _PLANNING
    name = os.environ.get("GSD_WORKSTREAM") or _text(planning / "active-workstream").strip()
    folder = planning / "workstreams" / name
    return folder if _WORKSTREAM.fullmatch(name) and folder.is_dir() else planning


def _text(path: Path) -> str:
    try:
        return read_regular(path).decode("utf-8", "replace")
    except (OSError, UnfitFileError):
        return ""


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []
