"""The gate's answer while no broker answers: from the database file, read only, if it is the owner's own."""

import contextlib
import os
import sqlite3
import stat
import time
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from gsd_review_broker.domain.gate.decision import Because, Covered, GateOverride, LandedCommit, ReviewedChange
from gsd_review_broker.domain.gate.judge import ApprovalsAtHand, GateAnswer, judge
from gsd_review_broker.domain.gate.policy import GatePolicy
from gsd_review_broker.domain.gate.records import path_key
from gsd_review_broker.domain.gate.request import Asker, GateRequest, parse_request
from gsd_review_broker.domain.model import Milliseconds
from gsd_review_broker.errors import BrokerError, StartError
from gsd_review_broker.files import read_regular
from gsd_review_broker.gate.hook import Site
from gsd_review_broker.gate.receipts import noted_receipts, parse_public_key, read_proofs
from gsd_review_broker.gate.reports import waiting_reports
from gsd_review_broker.git.discovery import is_tracked
from gsd_review_broker.settings.gate import read_policy
from gsd_review_broker.store import schema

_CHANGE = ("review_id", "revision", "digest", "repository", "folder", "records", "proposer", "reviewer", "approved_at")
_ON_PATH = (
    f"SELECT c.{', c.'.join(_CHANGE)} FROM approved_paths p JOIN reviewed_changes c ON c.review_id = p.review_id "  # noqa: S608 - the names are our own tables and columns
    "WHERE p.path_key = ? AND c.approved_at IS NOT NULL"
)
_NEWEST = "ORDER BY c.approved_at DESC, c.review_id LIMIT ?"
_OVERRIDE = ("id", "repository", "folder", "person", "reason", "created_at", "until")
_VALID = (
    f"SELECT {', '.join(_OVERRIDE)} FROM gate_overrides WHERE created_at <= ? AND until > ? ORDER BY until DESC LIMIT ?"  # noqa: S608 - as above
)
_LANDED = ("folder", "commit_id", "branch", "digest", "subject", "override_id", "landed_at")
_COMMIT = f"SELECT because, {', '.join(_LANDED)} FROM landed_commits WHERE folder = ? AND commit_id = ?"  # noqa: S608 - as above
_VERSION = "SELECT version_num FROM alembic_version"
_BUSY_SECONDS = 0.2
_LONGEST_REPORT = 64 * 1024 * 1024
DatabaseError = sqlite3.Error
_Row = TypeVar("_Row")


class ApprovalsFile:
    """The broker's database, opened for reading."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def approvals_beginning_at(self, path: bytes, old_id: bytes, limit: int) -> list[ReviewedChange]:
        values = (path_key(path), old_id.decode("ascii", "replace"), limit)
        return self._read(ReviewedChange, _CHANGE, f"{_ON_PATH} AND p.old_id = ? {_NEWEST}", values)

    def approvals_on_path(self, path: bytes, limit: int) -> list[ReviewedChange]:
        return self._read(ReviewedChange, _CHANGE, f"{_ON_PATH} {_NEWEST}", (path_key(path), limit))

    def overrides_valid_at(self, moment: Milliseconds, limit: int) -> list[GateOverride]:
        return self._read(GateOverride, _OVERRIDE, _VALID, (moment, moment, limit))

    def landed_commit(self, folder: str, commit_id: str) -> LandedCommit | None:
        """Read it without its reviews, which the judge does not need."""
        row = self._connection.execute(_COMMIT, (folder, commit_id)).fetchone()
        if row is None:
            return None
        because = None if row[0] is None else Because(row[0])
        return LandedCommit(because=because, reviews=(), **dict(zip(_LANDED, row[1:], strict=True)))

    def _read(self, kind: type[_Row], names: tuple[str, ...], statement: str, values: tuple[object, ...]) -> list[_Row]:
        return [kind(**dict(zip(names, row, strict=True))) for row in self._connection.execute(statement, values)]


def answer_from_file(site: Site, body: bytes, problem: str) -> tuple[str, str]:
    """Give `pass`, `warn` or `refuse`, and the words."""
    policy = read_policy(site.known.get("project_file"), site.known.get("user_file"))
    request = parse_request(body)
    answer = _judged(site, request, policy, problem)
    if answer.refusals:
        by_receipts = _covered_by_receipts(site, request, policy)
        answer = _judged(site, request, policy, problem, by_receipts) if by_receipts else answer
    return answer.outcome, answer.text


def _judged(
    site: Site, request: GateRequest, policy: GatePolicy, problem: str, known: Mapping[str, Covered] | None = None
) -> GateAnswer:
    try:
        return judged_from_file(site, request, policy, _note(problem), known)
    except (OSError, sqlite3.Error, ValueError) as error:
        note = _note(f"{problem}, and its database cannot be read ({error})")
        return judge(ApprovalsAtHand(), request, policy, _now(), known=known, notes=(note,))


def _note(why: str) -> str:
    return f"{why[:1].upper()}{why[1:]}: start it with `tandem up` if the change was approved meanwhile."


def _covered_by_receipts(site: Site, request: GateRequest, policy: GatePolicy) -> Mapping[str, Covered]:
    """Look at the receipts in the repository's notes that are signed with this user's own key."""
    noted = noted_receipts(Path(site.common))
    if not noted:
        return {}
    try:
        key = parse_public_key(Path(site.known.get("public_key") or os.devnull).read_text("ascii"))
        proofs = read_proofs(noted, key, request.origin, request.commits, policy)
    except (ImportError, OSError, ValueError):
        return {}
    return judge(proofs.kept, replace(request, plans=()), policy, _now()).covered


def judged_from_file(
    site: Site, request: GateRequest, policy: GatePolicy, note: str, known: Mapping[str, Covered] | None = None
) -> GateAnswer:
    """Raises OSError, sqlite3.Error or ValueError where no file can be trusted."""
    errors: list[Exception] = []
    unrecorded = {} if request.asker is Asker.HOOK else _waiting(request.origin.folder)
    for database in site.databases:
        try:
            with opened(Path(database), site.known.get("root")) as kept:
                return judge(kept, request, policy, _now(), known=known, unrecorded=unrecorded, notes=(note,))
        except (OSError, sqlite3.Error, ValueError) as problem:
            errors.append(problem)
    # The repository's own database comes first, and what is wrong with it matters most.
    raise errors[0] if errors else FileNotFoundError("there is none")


def _now() -> Milliseconds:
    return Milliseconds(int(time.time() * 1000))


def _waiting(folder: str) -> dict[str, Milliseconds]:
    """Read when each commit landed that the broker has not recorded yet."""
    own = Path(folder) / "tandem"
    moments: dict[str, Milliseconds] = {}
    for name in waiting_reports(str(own)) if own.is_dir() else []:
        with contextlib.suppress(OSError, BrokerError):
            report = parse_request(read_regular(own / name, largest=_LONGEST_REPORT))
            if report.asked_at is not None:
                moments |= {commit.id: report.asked_at for commit in report.commits}
    return moments


@contextlib.contextmanager
def opened(database: Path, root: str | None) -> Generator[ApprovalsFile]:
    """Open a plain file of this user that did not come with the repository."""
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
    # Without a log no broker writes, and none has to be made in order to read.
    immutable = "" if log.exists() else "&immutable=1"
    connection = sqlite3.connect(f"{address}?mode=ro{immutable}", uri=True, timeout=_BUSY_SECONDS)
    try:
        _require_own(connection, database)
    except BaseException:
        connection.close()
        raise
    return connection


def _require_own(connection: sqlite3.Connection, database: Path) -> None:
    """Refuse a file without exactly the broker's own schema: a view could stand in the place of a table of approvals.
    Raises ValueError or sqlite3.Error."""
    schema.harden(connection)
    connection.execute("PRAGMA query_only=ON")
    try:
        # No view or trigger, before any table is read.
        schema.refuse_altered(connection, "", database)
        row = connection.execute(_VERSION).fetchone()
        if row is None or not schema.is_known(row[0]):
            raise ValueError(f"{database} is of another version")
        schema.refuse_altered(connection, row[0], database)
    except StartError as error:
        raise ValueError(str(error)) from error
