"""The gate's answer while no broker answers: from the database file, read only, if it is the owner's own."""

import contextlib
import os
import sqlite3
import stat
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

from gsd_review_broker.domain.gate import search
from gsd_review_broker.domain.gate.decision import Because, Commit, Covered, decide
from gsd_review_broker.domain.gate.ledger import Origin, ReviewedChange
from gsd_review_broker.domain.gate.plans import PlanStanding, held_back, standing_of
from gsd_review_broker.domain.gate.policy import GatePolicy, Mode, Override
from gsd_review_broker.domain.gate.receipts import parse_public_key
from gsd_review_broker.domain.gate.records import path_key
from gsd_review_broker.domain.gate.refusal import Refusal, files_of, plan_refusal_text, refusal_text
from gsd_review_broker.domain.gate.request import Asker, GateRequest, parse_request
from gsd_review_broker.domain.identity import Identity
from gsd_review_broker.domain.model import Milliseconds, ReviewId
from gsd_review_broker.errors import BrokerError, StartError
from gsd_review_broker.files.private import read_regular
from gsd_review_broker.gate.hook import Site
from gsd_review_broker.gate.receipts import decide_offline, read_proofs
from gsd_review_broker.gate.reports import waiting_reports
from gsd_review_broker.git.checkout import is_tracked
from gsd_review_broker.settings.gate import read_policy
from gsd_review_broker.store.sqlite import known_schema

_COLUMNS = "c.review_id, c.revision, c.digest, c.repository, c.folder, c.records, c.proposer, c.reviewer, c.approved_at"
_ON_PATH = (
    f"SELECT {_COLUMNS} FROM approved_paths p JOIN reviewed_changes c ON c.review_id = p.review_id "  # noqa: S608 - the names are our own tables and columns
    "WHERE p.path_key = ? AND c.approved_at IS NOT NULL"
)
_NEWEST = "ORDER BY c.approved_at DESC, c.review_id LIMIT ?"
_OVERRIDES = "SELECT repository, folder FROM gate_overrides WHERE created_at <= ? AND until > ?"
_LANDED_BY_OVERRIDE = "SELECT 1 FROM landed_commits WHERE folder = ? AND commit_id = ? AND override_id IS NOT NULL"
_VERSION = "SELECT version_num FROM alembic_version"
_BUSY_SECONDS = 0.2
_LONGEST_REPORT = 64 * 1024 * 1024
DatabaseError = sqlite3.Error


class ApprovalsFile:
    """The broker's database, opened for reading."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def approvals_beginning_at(self, path: bytes, old_id: bytes, limit: int) -> list[ReviewedChange]:
        statement = f"{_ON_PATH} AND p.old_id = ? {_NEWEST}"
        rows = self._connection.execute(statement, (path_key(path), old_id.decode("ascii", "replace"), limit))
        return [_change(row) for row in rows]

    def approvals_on_path(self, path: bytes, limit: int) -> list[ReviewedChange]:
        return [_change(row) for row in self._connection.execute(f"{_ON_PATH} {_NEWEST}", (path_key(path), limit))]

    def is_overridden(self, origin: Origin, moment: int) -> bool:
        rows = self._connection.execute(_OVERRIDES, (moment, moment)).fetchall()
        return any(Origin(root=root, folder=folder).is_same(origin) for root, folder in rows)

    def landed_by_override(self, folder: str, commit: str) -> bool:
        return self._connection.execute(_LANDED_BY_OVERRIDE, (folder, commit)).fetchone() is not None


def _change(row: tuple[object, ...]) -> ReviewedChange:
    review_id, revision, digest, repository, folder, records, proposer, reviewer, approved_at = row
    return ReviewedChange(
        review_id=ReviewId(str(review_id)),
        revision=int(str(revision)),
        digest=str(digest),
        repository=None if repository is None else str(repository),
        folder=str(folder),
        records=bytes(records) if isinstance(records, bytes) else b"",
        proposer=Identity(str(proposer)),
        reviewer=Identity(str(reviewer)),
        approved_at=Milliseconds(int(str(approved_at))),
    )


def answer_from_file(site: Site, body: bytes, problem: str) -> tuple[str, str]:
    """`pass`, `warn` or `refuse`, and the words."""
    policy = read_policy(site.known.get("project_file"), site.known.get("user_file"))
    if policy.mode is Mode.OFF:
        return "pass", ""
    request = parse_request(body)
    covered: dict[str, Covered] = {}
    plans = unknown_plans(request)
    why = problem
    try:
        covered, plans = decided_from_file(site, request, policy)
    except (OSError, sqlite3.Error, ValueError) as error:
        why = f"{problem}, and its database cannot be read ({error})"
    missing = [commit for commit in request.commits if commit.id not in covered]
    if missing:
        covered |= _from_receipts(site, missing, policy)
        missing = [commit for commit in missing if commit.id not in covered]
    held = held_back(request.commits, covered, plans, policy)
    outcome = "refuse" if policy.mode is Mode.BLOCK else "warn"
    if held:
        names = [plan.name for plan in plans if not plan.is_approved]
        return outcome, plan_refusal_text(held, names, request.root, policy)
    if not missing:
        return "pass", ""
    note = f"{why[:1].upper()}{why[1:]}: start it with `tandem up` if the change was approved meanwhile."
    return outcome, refusal(missing, policy, note, has_landed=False)


def unknown_plans(request: GateRequest) -> tuple[PlanStanding, ...]:
    """As long as no approval is found, there is none."""
    return tuple(PlanStanding(plan=plan, reviews=()) for plan in request.plans)


def _from_receipts(site: Site, commits: Sequence[Commit], policy: GatePolicy) -> dict[str, Covered]:
    """Receipts in the repository's notes, signed with this user's own key."""
    try:
        key = parse_public_key(Path(site.known.get("public_key") or os.devnull).read_text("ascii"))
        proofs = read_proofs(Path(site.common), key, site.known.get("commit") or None)
    except (OSError, ValueError):
        return {}
    # The receipt of an override is about a commit that landed, and these have not.
    return decide_offline(commits, replace(proofs, overrides={}), policy)


def refusal(missing: Sequence[Commit], policy: GatePolicy, note: str, *, has_landed: bool = True) -> str:
    refusals = [
        Refusal(commit=commit, files=files_of(commit, policy), nearest=None, has_landed=has_landed)
        for commit in missing
    ]
    return refusal_text(refusals, policy, note=note)


def decided_from_file(
    site: Site, request: GateRequest, policy: GatePolicy
) -> tuple[dict[str, Covered], tuple[PlanStanding, ...]]:
    """Raises OSError, sqlite3.Error or ValueError where no file can be trusted."""
    errors: list[Exception] = []
    for database in site.databases:
        try:
            with opened(Path(database), site.known.get("root")) as kept:
                plans = tuple(standing_of(kept, plan, request.origin, policy) for plan in request.plans)
                return _decided(kept, request, policy), plans
        except (OSError, sqlite3.Error, ValueError) as problem:
            errors.append(problem)
    # The repository's own database comes first, and what is wrong with it matters most.
    raise errors[0] if errors else FileNotFoundError("there is none")


def _decided(kept: ApprovalsFile, request: GateRequest, policy: GatePolicy) -> dict[str, Covered]:
    candidates = search.approvals(kept, request.commits, policy, request.origin, thorough=True)
    covered = decide(request.commits, [change.approval() for change in candidates.changes], policy)
    missing = [commit.id for commit in request.commits if commit.id not in covered]
    return covered | dict.fromkeys(_overridden(kept, request, policy, missing), Covered(because=Because.OVERRIDE))


def _overridden(kept: ApprovalsFile, request: GateRequest, policy: GatePolicy, missing: list[str]) -> list[str]:
    """An override counts for what lands while it is valid: now for the hook, and at its own time for what landed."""
    if request.asker is Asker.HOOK:
        is_valid = policy.override is Override.HUMAN and kept.is_overridden(request.origin, int(time.time() * 1000))
        return missing if is_valid else []
    folder = request.origin.folder
    waiting = _asked_at(folder)
    return [
        commit
        for commit in missing
        if kept.landed_by_override(folder, commit)
        or (
            commit in waiting
            and policy.override is Override.HUMAN
            and kept.is_overridden(request.origin, waiting[commit])
        )
    ]


def _asked_at(folder: str) -> dict[str, int]:
    """When each commit landed that the broker has not recorded yet."""
    own = Path(folder) / "tandem"
    moments: dict[str, int] = {}
    for name in waiting_reports(str(own)) if own.is_dir() else []:
        with contextlib.suppress(OSError, BrokerError):
            report = parse_request(read_regular(own / name, largest=_LONGEST_REPORT))
            if report.asked_at is not None:
                moments |= {commit.id: report.asked_at for commit in report.commits}
    return moments


@contextlib.contextmanager
def opened(database: Path, root: str | None) -> Generator[ApprovalsFile]:
    """Only a plain file of this user that did not come with the repository."""
    facts = database.lstat()
    if not stat.S_ISREG(facts.st_mode):
        raise OSError(f"{database} is not a plain file")
    if hasattr(os, "geteuid") and facts.st_uid != os.geteuid():
        raise OSError(f"{database} belongs to another user")
    if root and is_tracked(Path(root), database):
        raise OSError(f"{database} is tracked by git")
    with contextlib.closing(_connected(database)) as connection:
        yield ApprovalsFile(connection)


def _connected(database: Path) -> sqlite3.Connection:
    address = database.absolute().as_uri()
    log = Path(f"{database}-wal")
    # Without a log nobody writes, and none has to be made in order to read.
    immutable = "" if log.exists() else "&immutable=1"
    connection = sqlite3.connect(f"{address}?mode=ro{immutable}", uri=True, timeout=_BUSY_SECONDS)
    try:
        _require_own(connection, database)
    except BaseException:
        connection.close()
        raise
    return connection


def _require_own(connection: sqlite3.Connection, database: Path) -> None:
    """Only a file with exactly the broker's own schema can approve anything: a view could stand in the place of a
    table of approvals. Raises ValueError or sqlite3.Error."""
    known_schema.harden(connection)
    connection.execute("PRAGMA query_only=ON")
    try:
        # No view or trigger, before any table is read.
        known_schema.refuse_altered(connection, "", database)
        row = connection.execute(_VERSION).fetchone()
        if row is None or not known_schema.is_known(row[0]):
            raise ValueError(f"{database} is of another version")
        known_schema.refuse_altered(connection, row[0], database)
    except StartError as error:
        raise ValueError(str(error)) from error
