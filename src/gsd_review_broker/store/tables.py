"""The schema. Times are milliseconds since 1970; JSON is text, since the audit's hashes are over text.

One long module: the tables stand beside those that refer to them.
"""

from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    }
)

# Compared by their bytes, whatever the database's locale: prefixes and merges rely on it. SQLite always does.
_ID = sa.String(32).with_variant(sa.String(32, collation="C"), "postgresql")
_IDENTITY = sa.String(256)
# SQLite does not check widths and cannot change a declared type without copying the table, so it keeps the old one.
# An identity's compared spelling may be longer than the identity: NFKC expands U+FDFA to 18 letters.
_COMPARED = sa.Text().with_variant(sa.String(256), "sqlite")
# Up to two names as JSON, where each quote takes two characters. In the order of their bytes, like the ids.
_COUNTED = sa.Text(collation="C").with_variant(sa.String(1024), "sqlite")
_STATE = sa.String(32)
# Tools accept 64-bit numbers. On SQLite only INTEGER is the row id itself and needs no index of its own.
_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _table(name: str, *columns: sa.Column[Any], **options: Any) -> sa.Table:
    return sa.Table(name, metadata, *columns, **options)


reviews = _table(
    "reviews",
    sa.Column("id", _ID, primary_key=True),
    sa.Column("status", _STATE, nullable=False),
    sa.Column("version", _NUMBER, nullable=False),
    sa.Column("revision", _NUMBER, nullable=False),
    sa.Column("round", _NUMBER, nullable=False),
    sa.Column("claim_generation", _NUMBER, nullable=False),
    sa.Column("agent_type", _IDENTITY, nullable=False),
    sa.Column("agent_role", _STATE, nullable=False),
    sa.Column("phase", _IDENTITY, nullable=False),
    sa.Column("plan", _IDENTITY),
    sa.Column("task", _IDENTITY),
    sa.Column("category", _STATE),
    sa.Column("priority", _STATE, nullable=False),
    # critical, normal, low as 0, 1, 2; lists are ordered by it.
    sa.Column("rank", sa.SmallInteger, nullable=False),
    sa.Column("project", _IDENTITY),
    sa.Column("workspace", sa.Text),
    sa.Column("proposer_id", _IDENTITY),
    sa.Column("parent_id", _ID),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("intent", sa.Text, nullable=False),
    sa.Column("has_diff", sa.Boolean, nullable=False),
    sa.Column("author", _IDENTITY, nullable=False),
    sa.Column("digest", sa.String(80)),
    sa.Column("claimed_by", _IDENTITY),
    sa.Column("claimed_at", sa.BigInteger),
    sa.Column("claim_expires_at", sa.BigInteger),
    sa.Column("reserved_for", _IDENTITY),
    sa.Column("reserved_until", sa.BigInteger),
    sa.Column("verdict", _STATE),
    sa.Column("verdict_reason", sa.Text),
    sa.Column("outcome", _STATE),
    sa.Column("open_finding_count", _NUMBER, nullable=False),
    sa.Column("counter_patch_status", _STATE),
    sa.Column("needs_human", sa.Text),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("closed_at", sa.BigInteger),
    sa.Column("entered_at", sa.BigInteger, nullable=False),
    sa.Column("first_claimed_at", sa.BigInteger),
    sa.Column("first_verdict_at", sa.BigInteger),
    sa.Column("last_verdict", _STATE),
    sa.Column("message_count", _NUMBER, nullable=False),
    sa.Column("last_message_at", sa.BigInteger),
    sa.Column("last_message_preview", sa.Text),
    # The identities by which a claim is granted or not, in the spelling that is compared (domain.identity).
    sa.Column("proposer_key", _COMPARED, nullable=False),
    sa.Column("author_key", _COMPARED, nullable=False),
    sa.Column("reserved_key", _COMPARED),
)

# A list is always ordered by rank, created_at, id; each index serves one filter in that order.
_ORDER = ("rank", "created_at", "id")
sa.Index("ix_reviews_order", *(reviews.c[name] for name in _ORDER))
for _filter in ("status", "phase"):
    sa.Index(f"ix_reviews_{_filter}", *(reviews.c[name] for name in (_filter, *_ORDER)))


def _partial(index: str, condition: sa.ColumnElement[bool], *columns: sa.Column[Any], unique: bool = False) -> None:
    sa.Index(index, *columns, unique=unique, sqlite_where=condition, info={"where": condition})


# Optional columns get partial indexes; NULLs are left out.
def _optional_index(index: str, optional: str, *columns: str) -> None:
    _partial(index, reviews.c[optional].is_not(None), *(reviews.c[name] for name in columns))


for _optional in ("category", "plan", "proposer_id", "parent_id", "project"):
    _narrowed = (_optional, "status") if _optional == "project" else (_optional,)
    _optional_index(f"ix_reviews_{_optional}", _optional, *_narrowed, *_ORDER)
_optional_index("ix_reviews_needs_human", "needs_human", *_ORDER)
# The feed is ordered by the last update, read state by state and merged. Every event changes each index here, so there
# are as few as possible.
_LATEST = ("updated_at", "id")
sa.Index("ix_reviews_feed_status", *(reviews.c[name] for name in ("status", *_LATEST)))
for _optional in ("category", "project"):
    _optional_index(f"ix_reviews_feed_{_optional}", _optional, _optional, "status", *_LATEST)
# When reviews were closed; retention looks for the oldest.
for _moment in ("claim_expires_at", "reserved_until", "closed_at"):
    _optional_index(f"ix_reviews_{_moment}", _moment, _moment)


def prepare_for_postgresql() -> None:
    """Make the indexes partial there too. This is not done at import: naming the dialect imports it, and every broker
    on SQLite would pay for that.
    """
    for table in (reviews, reviewed_changes, landed_commits, tokens):
        for index in table.indexes:
            if "where" in index.info:
                index.dialect_options["postgresql"]["where"] = index.info["where"]


revisions = _table(
    "revisions",
    sa.Column("review_id", _ID, sa.ForeignKey("reviews.id"), primary_key=True),
    sa.Column("number", _NUMBER, primary_key=True),
    sa.Column("intent", sa.Text, nullable=False),
    sa.Column("description", sa.Text),
    sa.Column("diff", sa.LargeBinary),
    sa.Column("skip_diff_validation", sa.Boolean, nullable=False),
    sa.Column("affected_files", sa.Text, nullable=False),
    sa.Column("author", _IDENTITY, nullable=False),
    sa.Column("written_by", _IDENTITY, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)

messages = _table(
    "messages",
    sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
    sa.Column("review_id", _ID, sa.ForeignKey("reviews.id"), nullable=False),
    sa.Column("round", _NUMBER, nullable=False),
    sa.Column("sender_role", _STATE, nullable=False),
    sa.Column("sender", _IDENTITY, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("path", sa.Text),
    sa.Column("line", _NUMBER),
    sa.Column("in_reply_to", _NUMBER),
    sa.Column("metadata", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    # A number is never used twice, even when its message is in an archive.
    sqlite_autoincrement=True,
)
sa.Index("ix_messages_review_id", messages.c.review_id, messages.c.id)

counter_patches = _table(
    "counter_patches",
    sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
    sa.Column("review_id", _ID, sa.ForeignKey("reviews.id"), nullable=False),
    sa.Column("revision", _NUMBER, nullable=False),
    sa.Column("round", _NUMBER, nullable=False),
    sa.Column("diff", sa.LargeBinary, nullable=False),
    sa.Column("affected_files", sa.Text, nullable=False),
    sa.Column("offered_by", _IDENTITY, nullable=False),
    sa.Column("status", _STATE, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sqlite_autoincrement=True,
)
sa.Index("ix_counter_patches_review_id", counter_patches.c.review_id, counter_patches.c.id)

findings = _table(
    "findings",
    sa.Column("id", _ID, primary_key=True),
    sa.Column("review_id", _ID, sa.ForeignKey("reviews.id"), nullable=False),
    sa.Column("position", _NUMBER, nullable=False),
    sa.Column("raised_by", _IDENTITY, nullable=False),
    sa.Column("raised_in_round", _NUMBER, nullable=False),
    sa.Column("raised_at_revision", _NUMBER, nullable=False),
    sa.Column("times_raised", _NUMBER, nullable=False),
    sa.Column("path", sa.Text),
    sa.Column("line_start", _NUMBER),
    sa.Column("line_end", _NUMBER),
    sa.Column("side", _STATE, nullable=False),
    sa.Column("severity", _STATE, nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("suggestion", sa.Text),
    sa.Column("confidence", sa.Float),
    sa.Column("anchor", _STATE, nullable=False),
    sa.Column("anchor_text", sa.Text),
    sa.Column("disposition", _STATE, nullable=False),
    sa.Column("note", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)
sa.Index("ix_findings_review_id", findings.c.review_id, findings.c.position)

events = _table(
    "events",
    # Not an autoincrement: the chain's head numbers the events, so that a rolled back command leaves no gap.
    sa.Column("id", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("review_id", _ID),
    sa.Column("event_type", _STATE, nullable=False),
    sa.Column("actor", _IDENTITY, nullable=False),
    sa.Column("old_status", _STATE),
    sa.Column("new_status", _STATE),
    sa.Column("metadata", sa.Text, nullable=False),
    sa.Column("timestamp", sa.BigInteger, nullable=False),
    sa.Column("previous_hash", sa.String(64), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)
sa.Index("ix_events_review_id", events.c.review_id, events.c.id)

# One row, locked by each command that appends, so that the order of commits is the order of numbers on every database.
audit_head = _table(
    "audit_head",
    sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)

# Runs of events that were moved into an archive. The chain continues from the hash before a run to its last hash.
audit_gaps = _table(
    "audit_gaps",
    sa.Column("first", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("last", sa.BigInteger, nullable=False, unique=True),
    sa.Column("previous_hash", sa.String(64), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)

# Statistics, updated in the transaction that changes a review. A scope is a project, or '' for everything.
counters = _table(
    "counters",
    sa.Column("scope", _IDENTITY, primary_key=True),
    sa.Column("name", _STATE, primary_key=True),
    sa.Column("key", _COUNTED, primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
# The values of a histogram up to some moment: how many each bucket holds, as numbers of eight bytes.
histograms = _table(
    "histograms",
    sa.Column("scope", _IDENTITY, primary_key=True),
    sa.Column("name", _STATE, primary_key=True),
    sa.Column("total", sa.BigInteger, nullable=False),
    sa.Column("least", sa.BigInteger, nullable=False),
    sa.Column("most", sa.BigInteger, nullable=False),
    sa.Column("buckets", sa.LargeBinary, nullable=False),
)
# The values since then: one row for each bucket that is not empty. Adding to it reads nothing, and several writers add
# up.
histogram_buckets = _table(
    "histogram_buckets",
    sa.Column("scope", _IDENTITY, primary_key=True),
    sa.Column("name", _STATE, primary_key=True),
    sa.Column("bucket", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("total", sa.BigInteger, nullable=False),
    sa.Column("least", sa.BigInteger, nullable=False),
    sa.Column("most", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

idempotency_keys = _table(
    "idempotency_keys",
    sa.Column("project", _IDENTITY, primary_key=True),
    sa.Column("tool", _STATE, primary_key=True),
    sa.Column("key", _IDENTITY, primary_key=True),
    sa.Column("arguments_hash", sa.String(64), nullable=False),
    sa.Column("result", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)
sa.Index("ix_idempotency_keys_created_at", idempotency_keys.c.created_at)

# The pool: its reviewers, what they worked on, what failed. No foreign keys: statistics outlive pruned reviews.
reviewers = _table(
    "reviewers",
    sa.Column("id", _IDENTITY, primary_key=True),
    sa.Column("display_name", _IDENTITY, nullable=False),
    sa.Column("agent", _STATE, nullable=False),
    sa.Column("model", _IDENTITY),
    sa.Column("project", _IDENTITY),
    sa.Column("state", _STATE, nullable=False),
    sa.Column("host", _IDENTITY, nullable=False),
    sa.Column("pid", _NUMBER, nullable=False),
    sa.Column("process_start", _IDENTITY),
    sa.Column("started_at", sa.BigInteger, nullable=False),
    sa.Column("broker_id", _IDENTITY),
    sa.Column("drained_at", sa.BigInteger),
    sa.Column("ended_at", sa.BigInteger),
    sa.Column("end_reason", _STATE),
    sa.Column("exit_code", _NUMBER),
    sa.Column("reviews_completed", _NUMBER, nullable=False),
    sa.Column("reviews_approved", _NUMBER, nullable=False),
    sa.Column("review_milliseconds", sa.BigInteger, nullable=False),
    sa.Column("input_tokens", sa.BigInteger),
    sa.Column("output_tokens", sa.BigInteger),
    sa.Column("cost_usd", sa.Float),
)
sa.Index("ix_reviewers_ended_at", reviewers.c.ended_at, reviewers.c.started_at)
sa.Index("ix_reviewers_started_at", reviewers.c.started_at)

reviewer_work = _table(
    "reviewer_work",
    sa.Column("review_id", _ID, primary_key=True),
    sa.Column("claim_generation", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("reviewer_id", _IDENTITY, nullable=False),
    sa.Column("claimed_at", sa.BigInteger, nullable=False),
    sa.Column("ended_at", sa.BigInteger),
    sa.Column("outcome", _STATE),
    sa.Column("input_tokens", sa.BigInteger),
    sa.Column("output_tokens", sa.BigInteger),
    sa.Column("cost_usd", sa.Float),
)
sa.Index("ix_reviewer_work_reviewer_id", reviewer_work.c.reviewer_id, reviewer_work.c.claimed_at)
sa.Index("ix_reviewer_work_ended_at", reviewer_work.c.ended_at)

review_failures = _table(
    "review_failures",
    sa.Column("review_id", _ID, primary_key=True),
    sa.Column("failures", _NUMBER, nullable=False),
    sa.Column("retry_at", sa.BigInteger, nullable=False),
)

# Brokers that share a database, each with the last time that it was heard of.
brokers = _table(
    "brokers",
    sa.Column("id", _IDENTITY, primary_key=True),
    sa.Column("heartbeat_at", sa.BigInteger, nullable=False),
)

pool_switches = _table(
    "pool_switches",
    sa.Column("name", _STATE, primary_key=True),
    sa.Column("on", sa.Boolean, nullable=False),
)

# The gate. No foreign keys: an approval applies, and a commit has landed, also when the review is in an archive.
reviewed_changes = _table(
    "reviewed_changes",
    sa.Column("review_id", _ID, primary_key=True),
    sa.Column("revision", _NUMBER, nullable=False),
    sa.Column("digest", sa.String(80), nullable=False),
    sa.Column("repository", sa.String(64)),
    sa.Column("folder", sa.Text, nullable=False),
    sa.Column("records", sa.LargeBinary, nullable=False),
    sa.Column("proposer", _IDENTITY),
    sa.Column("reviewer", _IDENTITY),
    sa.Column("approved_at", sa.BigInteger),
    sa.Column("receipt", sa.Text),
    sa.Column("landed_at", sa.BigInteger),
)
_never_landed = sa.and_(reviewed_changes.c.approved_at.is_not(None), reviewed_changes.c.landed_at.is_(None))
_partial("ix_reviewed_changes_never_landed", _never_landed, reviewed_changes.c.approved_at)

# Where each approved change begins: the path, as a hash, and the object that it changes.
approved_paths = _table(
    "approved_paths",
    sa.Column("path_key", sa.String(64), primary_key=True),
    sa.Column("old_id", sa.String(64), primary_key=True),
    sa.Column("review_id", _ID, primary_key=True),
    sqlite_with_rowid=False,
)

gate_overrides = _table(
    "gate_overrides",
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("repository", sa.String(64)),
    sa.Column("folder", sa.Text, nullable=False),
    sa.Column("person", _IDENTITY, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("until", sa.BigInteger, nullable=False),
    sqlite_autoincrement=True,
)
sa.Index("ix_gate_overrides_until", gate_overrides.c.until)

landed_commits = _table(
    "landed_commits",
    sa.Column("folder", sa.Text, primary_key=True),
    sa.Column("commit_id", sa.String(64), primary_key=True),
    sa.Column("branch", sa.Text, nullable=False),
    sa.Column("digest", sa.String(80), nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("because", _STATE),
    sa.Column("reviews", sa.Text, nullable=False),
    sa.Column("override_id", _NUMBER),
    sa.Column("landed_at", sa.BigInteger, nullable=False),
)
sa.Index("ix_landed_commits_landed_at", landed_commits.c.landed_at)
_without_approval = landed_commits.c.reviews == sa.literal_column("'[]'")
_partial("ix_landed_commits_without_approval", _without_approval, landed_commits.c.landed_at)

# Links to the dashboard that were not used yet: any broker of the database may be asked for the page.
sign_in_links = _table(
    "sign_in_links",
    sa.Column("hash", sa.String(64), primary_key=True),
    sa.Column("sealed_token", sa.Text, nullable=False),
    sa.Column("page", sa.Text, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
)
sa.Index("ix_sign_in_links_expires_at", sign_in_links.c.expires_at)

# Only hashes: a reader of the database learns no token. Among tokens that were not revoked a name occurs once.
tokens = _table(
    "tokens",
    sa.Column("hash", sa.String(64), primary_key=True),
    sa.Column("name", _IDENTITY, nullable=False),
    sa.Column("name_key", _COMPARED, nullable=False),
    sa.Column("role", _STATE, nullable=False),
    sa.Column("project", _IDENTITY),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("created_by", _IDENTITY, nullable=False),
    sa.Column("expires_at", sa.BigInteger),
    sa.Column("revoked_at", sa.BigInteger),
)
sa.Index("ix_tokens_created_at", tokens.c.created_at)
_partial("ix_tokens_name_key", tokens.c.revoked_at.is_(None), tokens.c.name_key, unique=True)

# The order in which a command locks rows that others may want too: first reviews (several in the order of their ids),
# last the rows that every command writes. A lock on a review covers the rows that belong to it.
LOCK_ORDER = (
    reviews,
    idempotency_keys,
    review_failures,
    reviewer_work,
    reviewers,
    brokers,
    pool_switches,
    audit_head,
    events,
    counters,
    histogram_buckets,
    histograms,
)
