"""The gate's rows: reviewed changes, overrides, landed commits. Mixed into the store's reader and transaction."""

import json
from typing import Any

import sqlalchemy as sa

from gsd_review_broker.domain.audit import canonical
from gsd_review_broker.domain.gate.decision import Because, GateOverride, LandedCommit, ReviewedChange
from gsd_review_broker.domain.gate.records import parse_records, path_key
from gsd_review_broker.domain.model import Milliseconds, ReviewId
from gsd_review_broker.store.rows import Rows, member_of
from gsd_review_broker.store.statements import Statements, parameter
from gsd_review_broker.store.tables import approved_paths, gate_overrides, landed_commits, reviewed_changes

REVIEWED_CHANGES = Rows(ReviewedChange, reviewed_changes)
OVERRIDES = Rows(GateOverride, gate_overrides)
LANDED = Rows(LandedCommit, landed_commits, because=member_of(Because), reviews=lambda text: tuple(json.loads(text)))

_CHANGE = sa.select(*REVIEWED_CHANGES.columns).where(reviewed_changes.c.review_id == parameter("review_id"))
_ON_PATH = (
    sa.select(*REVIEWED_CHANGES.columns)
    .join(approved_paths, approved_paths.c.review_id == reviewed_changes.c.review_id)
    .where(approved_paths.c.path_key == parameter("path_key"))
    .order_by(reviewed_changes.c.approved_at.desc(), reviewed_changes.c.review_id)
    .limit(parameter("most"))
)
_BEGINNING_AT = _ON_PATH.where(approved_paths.c.old_id == parameter("old_id"))
_NEVER_LANDED = (
    sa.select(*REVIEWED_CHANGES.columns)
    .where(reviewed_changes.c.approved_at.is_not(None), reviewed_changes.c.landed_at.is_(None))
    .order_by(reviewed_changes.c.approved_at.desc())
    .limit(parameter("most"))
)
_OVERRIDE = sa.select(*OVERRIDES.columns).where(gate_overrides.c.id == parameter("override_id"))
_VALID_OVERRIDES = (
    sa.select(*OVERRIDES.columns)
    .where(gate_overrides.c.until > parameter("moment"), gate_overrides.c.created_at <= parameter("moment"))
    .order_by(gate_overrides.c.until.desc())
    .limit(parameter("most"))
)
_LATEST_OVERRIDES = sa.select(*OVERRIDES.columns).order_by(gate_overrides.c.id.desc()).limit(parameter("most"))
_LANDED = sa.select(*LANDED.columns).where(
    landed_commits.c.folder == parameter("folder"), landed_commits.c.commit_id == parameter("commit_id")
)
_LATEST_LANDED = sa.select(*LANDED.columns).order_by(landed_commits.c.landed_at.desc()).limit(parameter("most"))
_WITHOUT_APPROVAL = _LATEST_LANDED.where(
    landed_commits.c.reviews == sa.literal_column("'[]'"),
    sa.or_(
        landed_commits.c.because.is_(None), landed_commits.c.because == sa.literal_column(f"'{Because.OVERRIDE.value}'")
    ),
)
_FORGET_CHANGE = sa.delete(reviewed_changes).where(reviewed_changes.c.review_id == parameter("review_id"))
_INSERT_CHANGE = sa.insert(reviewed_changes)
_INSERT_PATH = sa.insert(approved_paths)
_MARK_LANDED = (
    sa.update(reviewed_changes)
    .where(reviewed_changes.c.review_id == parameter("of_review"))
    .values(landed_at=parameter("at"))
)
_INSERT_OVERRIDE = (
    sa.insert(gate_overrides)
    .values({column: parameter(column.name) for column in gate_overrides.c if column.name != "id"})
    .returning(gate_overrides.c.id)
)
_INSERT_LANDED = sa.insert(landed_commits)


class GateReads:
    _statements: Statements

    def reviewed_change(self, review_id: ReviewId) -> ReviewedChange | None:
        row = self._statements.row(_CHANGE, {"review_id": review_id})
        return REVIEWED_CHANGES.read(row) if row else None

    def approvals_beginning_at(self, path: bytes, old_id: bytes, limit: int) -> list[ReviewedChange]:
        wanted = {"path_key": path_key(path), "old_id": old_id.decode("ascii", "replace"), "most": limit}
        return [REVIEWED_CHANGES.read(row) for row in self._statements.rows(_BEGINNING_AT, wanted)]

    def approvals_on_path(self, path: bytes, limit: int) -> list[ReviewedChange]:
        wanted = {"path_key": path_key(path), "most": limit}
        return [REVIEWED_CHANGES.read(row) for row in self._statements.rows(_ON_PATH, wanted)]

    def approved_and_never_landed(self, limit: int) -> list[ReviewedChange]:
        return [REVIEWED_CHANGES.read(row) for row in self._statements.rows(_NEVER_LANDED, {"most": limit})]

    def gate_override(self, override_id: int) -> GateOverride | None:
        row = self._statements.row(_OVERRIDE, {"override_id": override_id})
        return OVERRIDES.read(row) if row else None

    def overrides_valid_at(self, moment: Milliseconds, limit: int) -> list[GateOverride]:
        rows = self._statements.rows(_VALID_OVERRIDES, {"moment": moment, "most": limit})
        return [OVERRIDES.read(row) for row in rows]

    def latest_overrides(self, limit: int) -> list[GateOverride]:
        return [OVERRIDES.read(row) for row in self._statements.rows(_LATEST_OVERRIDES, {"most": limit})]

    def landed_commit(self, folder: str, commit_id: str) -> LandedCommit | None:
        row = self._statements.row(_LANDED, {"folder": folder, "commit_id": commit_id})
        return LANDED.read(row) if row else None

    def landed_commits(self, limit: int) -> list[LandedCommit]:
        return [LANDED.read(row) for row in self._statements.rows(_LATEST_LANDED, {"most": limit})]

    def landed_without_approval(self, limit: int) -> list[LandedCommit]:
        return [LANDED.read(row) for row in self._statements.rows(_WITHOUT_APPROVAL, {"most": limit})]


class GateWrites(GateReads):
    def save_reviewed_change(self, change: ReviewedChange) -> None:
        """What the newest claim is about; an approved one can be found by its paths."""
        self._statements.run(_FORGET_CHANGE, {"review_id": change.review_id})
        self._statements.run(_INSERT_CHANGE, _values(reviewed_changes, change))
        if change.approved_at is not None:
            steps = parse_records(change.records).items()
            paths = [
                {"path_key": path_key(path), "old_id": step.old.object_id.decode(), "review_id": change.review_id}
                for path, step in steps
            ]
            self._statements.run_all(_INSERT_PATH, paths)

    def save_override(self, override: GateOverride) -> int:
        values = _values(gate_overrides, override)
        del values["id"]
        row = self._statements.row(_INSERT_OVERRIDE, values)
        assert row is not None  # noqa: S101 - RETURNING gives the row that was inserted
        return row[0]

    def save_landed(self, commit: LandedCommit) -> None:
        """Once for each commit; and its reviews have landed."""
        values = _values(landed_commits, commit) | {"reviews": canonical(list(commit.reviews))}
        self._statements.run(_INSERT_LANDED, values)
        for review_id in commit.reviews:
            self._statements.run(_MARK_LANDED, {"of_review": review_id, "at": commit.landed_at})


def _values(table: sa.Table, row: object) -> dict[str, Any]:
    return {column.name: getattr(row, column.name) for column in table.c}
