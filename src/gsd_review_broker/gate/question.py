"""What a question to the gate says beside its commits: which merges are git's own, and GSD's active plans. The hook
imports it only where there is one of them."""

import os
import re
import stat
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from gsd_review_broker.domain.gate.records import Entry, blob_id, object_format
from gsd_review_broker.domain.gate.request import PLAN, PlanVersion, is_plan, parse_log, plan_line
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.files import UnfitFileError, read_regular, read_with_status
from gsd_review_broker.git.objects import IsolatedRepository, make_isolated_repository
from gsd_review_broker.git.program import run_git, text_of
from gsd_review_broker.settings.gate import read_policy

_ALTERNATES = "GIT_ALTERNATE_OBJECT_DIRECTORIES"
_SUMMARY = "SUMMARY.md"
_PLANNING = ".planning"
_MOST_PLANS = 200
_WORKSTREAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NUMBER = r"\d+[A-Za-z]?(?:\.\d+)*"
# In the order in which GSD believes them: the front matter, the field of older versions, the line in the text.
_CURRENT = tuple(
    re.compile(rf"^[ \t]*(?:\*\*)?{name}(?:\*\*)?:(?:\*\*)?[ \t]*[\"']?({_NUMBER})", re.MULTILINE)
    for name in ("current_phase", "Current Phase", "Phase")
)
# A project may have a code of its own before the number: `03-parse`, `SHOP-03-parse`.
_FOLDER = re.compile(rf"(?:[A-Z][A-Z0-9]*-)?({_NUMBER})(?:-|$)")


def clean(log: bytes, environment: dict[str, str]) -> list[str]:
    """Find the merges in the output of `git log` whose tree equals git's own clean merge. `environment` names the
    repository and its objects."""
    merges = [commit for commit in parse_log(log) if len(commit.parents) == 2]  # noqa: PLR2004 - two branches
    if not merges:
        return []
    with tempfile.TemporaryDirectory(prefix="tandem-") as scratch:
        isolated = _empty_repository(Path(scratch), environment, object_format(merges[0].id))
        return [merge.id for merge in merges if _merged(isolated, *merge.parents) == merge.tree]


def _empty_repository(scratch: Path, known: dict[str, str], kind: str) -> IsolatedRepository:
    """Beside the real one, with its objects and none of its configuration: that could name programs that merge."""
    answer = run_git(Path.cwd(), "rev-parse", "--path-format=absolute", "--git-path", "objects", environment=known)
    if not answer.is_good:
        raise BrokerError(Code.UNAVAILABLE, f"git rev-parse: {answer.why}", "Look at the repository.")
    isolated = make_isolated_repository(scratch, objects=text_of(answer.output), object_format=kind)
    listed = (isolated.environment[_ALTERNATES], known.get(_ALTERNATES, ""))
    return replace(isolated, environment=isolated.environment | {_ALTERNATES: os.pathsep.join(filter(None, listed))})


def _merged(isolated: IsolatedRepository, ours: str, theirs: str) -> str | None:
    merge = ("merge-tree", "--write-tree", "--no-messages", ours, theirs)
    answer = run_git(isolated.folder, *merge, environment=isolated.environment)
    return text_of(answer.output).strip() if answer.is_good else None


def required_plans(known: Mapping[str, str], commit: str) -> bytes:
    """Say which plans are active; nothing unless the policy holds code back. `commit` is any of the repository."""
    root = known.get("root")
    policy = read_policy(known.get("project_file"), known.get("user_file"))
    if not root or not policy.plan_first:
        return b""
    return b"".join(map(plan_line, plan_versions(Path(root), active_plans(Path(root)), commit)))


def active_plans(root: Path) -> list[str]:
    """List their paths below the root. Where GSD names no current phase, all plans without a summary are active."""
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
    kind = object_format(commit)
    return [PlanVersion(path=os.fsencode(name), entries=_entries(root / name, kind)) for name in names]


def _entries(path: Path, kind: str) -> tuple[Entry, ...]:
    """Read a file as git would store it, without filters: a repository's configuration may name any program."""
    try:
        content, status = read_with_status(path)
    except (OSError, UnfitFileError):
        return ()
    mode = b"100755" if status.st_mode & stat.S_IXUSR else b"100644"
    contents = dict.fromkeys((content, content.replace(b"\r\n", b"\n")))
    return tuple(Entry(mode, blob_id(one, kind).encode("ascii")) for one in contents)


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


def current_phase(state: str) -> str | None:
    """Find the phase that GSD's STATE.md names; None if it names none."""
    for pattern in _CURRENT:
        match = pattern.search(state)
        if match:
            return _plain(match[1])
    return None


def is_of_phase(folder: str, phase: str) -> bool:
    match = _FOLDER.match(folder)
    return match is not None and _plain(match[1]) == phase


def _plain(number: str) -> str:
    """GSD writes `03` and `3` for the same phase."""
    return number.lstrip("0") or "0"


def unfinished_plans(names: Iterable[str]) -> list[str]:
    """List the plans in a phase's folder that have no summary."""
    known = set(names)
    plans = sorted(name for name in known if is_plan(name))
    return [name for name in plans if name.removesuffix(PLAN) + _SUMMARY not in known]
