"""What a client of the gate sends: lines of `key=value`, an empty line, and the output of `git log`.

git's own bytes go over the wire, so that the hook has nothing to encode."""

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gsd_review_broker.domain.gate.decision import Commit, RepositoryId
from gsd_review_broker.domain.gate.policy import PROBLEM, Mode, check_section
from gsd_review_broker.domain.gate.records import Entry, Steps, parse_records
from gsd_review_broker.domain.model import Milliseconds
from gsd_review_broker.errors import BrokerError, Code

MOST_COMMITS = 5_000
PLAN = "PLAN.md"
_LONGEST_SUBJECT = 200
_MOMENT = re.compile("[0-9]{1,15}")


class Asker(StrEnum):
    HOOK = "hook"
    CHECK = "check"
    STATUS = "status"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanVersion:
    """A plan as it is now, by its path in the repository. Its content may have two ids: git stores lines that end with
    CR LF as they are, or without CR."""

    path: bytes
    entries: tuple[Entry, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class GateRequest:
    origin: RepositoryId
    asker: Asker
    # The main work tree; None in a bare repository.
    root: str | None
    # The caller is on another machine: its paths mean nothing here.
    is_elsewhere: bool = False
    # What the caller's own files demand; the stricter mode applies.
    mode: Mode | None = None
    # The sections `gate` of the caller's environment; each can only make the policy stricter.
    demands: tuple[dict[str, Any], ...] = ()
    # As `refs/heads/NAME`.
    branches: tuple[str, ...]
    # When the hook asked; a report of what landed may come much later.
    asked_at: Milliseconds | None = None
    commits: tuple[Commit, ...]
    # GSD's active plans, where the policy wants them, or those that are asked about.
    plans: tuple[PlanVersion, ...] = ()


def parse_request(body: bytes) -> GateRequest:
    head, separator, log = body.partition(b"\n\n")
    if not separator:
        raise _malformed("it has no empty line after its head")
    pairs = [line.partition(b"=") for line in head.split(b"\n")]
    values = {key.decode("ascii", "replace"): _text(value) for key, _, value in pairs}
    folder, asker = values.get("folder"), values.get("by")
    if not folder or asker not in set(Asker):
        raise _malformed("its head needs folder and by")
    clean = frozenset(_text(value) for key, _, value in pairs if key == b"clean")
    try:
        commits = parse_log(log, clean)
    except ValueError as error:
        raise _malformed(str(error)) from error
    return GateRequest(
        origin=RepositoryId(root=values.get("commit") or None, folder=folder),
        asker=Asker(asker),
        root=values.get("root") or None,
        is_elsewhere=values.get("elsewhere") == "yes",
        mode=Mode(values["mode"]) if values.get("mode") in set(Mode) else None,
        demands=_demands(values.get("demands", "[]")),
        asked_at=_moment(values.get("at", "")),
        branches=tuple(_text(value) for key, _, value in pairs if key == b"branch"),
        commits=commits,
        plans=tuple(_plan(value) for key, _, value in pairs if key == b"plan"),
    )


def _plan(value: bytes) -> PlanVersion:
    mode, ids, path = (*value.split(b" ", 2), b"", b"")[:3]
    return PlanVersion(path=path, entries=tuple(Entry(mode, one) for one in ids.split(b",") if one))


def plan_line(plan: PlanVersion) -> bytes:
    """Write a plan's line. A line break in its name becomes `?`, and such a name has no approval."""
    mode = plan.entries[0].mode if plan.entries else b"000000"
    ids = b",".join(entry.object_id for entry in plan.entries)
    return b"plan=%b %b %b\n" % (mode, ids, plan.path.replace(b"\n", b"?"))


def is_plan(name: str) -> bool:
    """Say whether GSD takes a file of this name for a plan."""
    return name == PLAN or name.endswith(f"-{PLAN}")


def _demands(text: str) -> tuple[dict[str, Any], ...]:
    try:
        sections = json.loads(text)
        for section in sections:
            if PROBLEM not in section:
                check_section(section)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _malformed(f"its demands: {error}") from error
    return tuple(sections)


def _moment(text: str) -> Milliseconds | None:
    return Milliseconds(int(text)) if _MOMENT.fullmatch(text) else None


def _malformed(why: str) -> BrokerError:
    return BrokerError(
        Code.INVALID_ARGUMENT,
        f"this is not a question to the gate: {why}",
        "Run `tandem gate install` again; the hook may be of another version.",
    )


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def parse_log(log: bytes, clean: frozenset[str] = frozenset()) -> tuple[Commit, ...]:
    """Read the commits of `git log`, asked as `gate.hook.LOG` asks: everything has a fixed position. `id tree parents`,
    NUL, the subject, NUL, and then the records, if there are any. Raises ValueError."""
    fields = log.split(b"\0")
    if fields.pop():
        raise ValueError("the output of git log is cut short")
    commits: list[Commit] = []
    at = 0
    while at < len(fields):
        if len(commits) == MOST_COMMITS:
            raise ValueError(f"more than {MOST_COMMITS} commits at once; check a shorter range")
        commit, at = _commit(fields, at, clean)
        commits.append(commit)
    return tuple(commits)


def _commit(fields: list[bytes], at: int, clean: frozenset[str]) -> tuple[Commit, int]:
    ids = fields[at].decode("ascii").split(" ")
    if len(ids) < 2 or at + 1 >= len(fields):  # noqa: PLR2004 - the commit and its tree
        raise ValueError(f"{fields[at][:100]!r} is not a commit of git log")
    subject = fields[at + 1].decode("utf-8", "replace")[:_LONGEST_SUBJECT]
    end = at + 2
    while end + 1 < len(fields) and fields[end].lstrip(b"\n").startswith(b":"):
        end += 2
    steps = _steps(fields[at + 2 : end])
    parents = tuple(parent for parent in ids[2:] if parent)
    commit = Commit(
        id=ids[0], tree=ids[1], parents=parents, subject=subject, steps=steps, is_clean_merge=ids[0] in clean
    )
    return commit, end


def _steps(fields: list[bytes]) -> Steps:
    if fields:
        fields[0] = fields[0].removeprefix(b"\n")
    return parse_records(b"".join(field + b"\0" for field in fields))
