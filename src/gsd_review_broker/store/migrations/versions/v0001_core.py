"""The core: reviews, revisions, discussion, the audit's chain, idempotency keys."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "audit_head",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_head")),
    )
    op.create_table(
        "audit_gaps",
        sa.Column("first", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("previous_hash", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("first", name=op.f("pk_audit_gaps")),
        sa.UniqueConstraint("last", name=op.f("uq_audit_gaps_last")),
    )
    op.create_table(
        "counters",
        sa.Column("scope", sa.String(length=256), nullable=False),
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("key", sa.String(length=1024), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "name", "key", name=op.f("pk_counters")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "histograms",
        sa.Column("scope", sa.String(length=256), nullable=False),
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("least", sa.BigInteger(), nullable=False),
        sa.Column("most", sa.BigInteger(), nullable=False),
        sa.Column("buckets", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "name", name=op.f("pk_histograms")),
    )
    op.create_table(
        "events",
        sa.Column("id", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("review_id", sa.String(length=32), nullable=True),
        sa.Column("event_type", sa.String(length=32), nullable=False),
        sa.Column("actor", sa.String(length=256), nullable=False),
        sa.Column("old_status", sa.String(length=32), nullable=True),
        sa.Column("new_status", sa.String(length=32), nullable=True),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("timestamp", sa.BigInteger(), nullable=False),
        sa.Column("previous_hash", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index("ix_events_review_id", "events", ["review_id", "id"], unique=False)
    op.create_table(
        "idempotency_keys",
        sa.Column("project", sa.String(length=256), nullable=False),
        sa.Column("tool", sa.String(length=32), nullable=False),
        sa.Column("key", sa.String(length=256), nullable=False),
        sa.Column("arguments_hash", sa.String(length=64), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "tool", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"], unique=False)
    op.create_table(
        "reviews",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("claim_generation", sa.Integer(), nullable=False),
        sa.Column("agent_type", sa.String(length=256), nullable=False),
        sa.Column("agent_role", sa.String(length=32), nullable=False),
        sa.Column("phase", sa.String(length=256), nullable=False),
        sa.Column("plan", sa.String(length=256), nullable=True),
        sa.Column("task", sa.String(length=256), nullable=True),
        sa.Column("category", sa.String(length=32), nullable=True),
        sa.Column("priority", sa.String(length=32), nullable=False),
        sa.Column("rank", sa.SmallInteger(), nullable=False),
        sa.Column("project", sa.String(length=256), nullable=True),
        sa.Column("workspace", sa.Text(), nullable=True),
        sa.Column("proposer_id", sa.String(length=256), nullable=True),
        sa.Column("parent_id", sa.String(length=32), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("intent", sa.Text(), nullable=False),
        sa.Column("has_diff", sa.Boolean(), nullable=False),
        sa.Column("author", sa.String(length=256), nullable=False),
        sa.Column("digest", sa.String(length=80), nullable=True),
        sa.Column("claimed_by", sa.String(length=256), nullable=True),
        sa.Column("claimed_at", sa.BigInteger(), nullable=True),
        sa.Column("claim_expires_at", sa.BigInteger(), nullable=True),
        sa.Column("reserved_for", sa.String(length=256), nullable=True),
        sa.Column("reserved_until", sa.BigInteger(), nullable=True),
        sa.Column("verdict", sa.String(length=32), nullable=True),
        sa.Column("verdict_reason", sa.Text(), nullable=True),
        sa.Column("outcome", sa.String(length=32), nullable=True),
        sa.Column("open_finding_count", sa.Integer(), nullable=False),
        sa.Column("counter_patch_status", sa.String(length=32), nullable=True),
        sa.Column("needs_human", sa.Text(), nullable=True),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.BigInteger(), nullable=True),
        sa.Column("entered_at", sa.BigInteger(), nullable=False),
        sa.Column("first_claimed_at", sa.BigInteger(), nullable=True),
        sa.Column("first_verdict_at", sa.BigInteger(), nullable=True),
        sa.Column("last_verdict", sa.String(length=32), nullable=True),
        sa.Column("message_count", sa.Integer(), nullable=False),
        sa.Column("last_message_at", sa.BigInteger(), nullable=True),
        sa.Column("last_message_preview", sa.Text(), nullable=True),
        sa.Column("proposer_key", sa.String(length=256), nullable=False),
        sa.Column("author_key", sa.String(length=256), nullable=False),
        sa.Column("reserved_key", sa.String(length=256), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reviews")),
    )
    op.create_index(
        "ix_reviews_category",
        "reviews",
        ["category", "rank", "created_at", "id"],
        unique=False,
        sqlite_where=sa.text("category IS NOT NULL"),
        postgresql_where=sa.text("category IS NOT NULL"),
    )
    op.create_index(
        "ix_reviews_claim_expires_at",
        "reviews",
        ["claim_expires_at"],
        unique=False,
        sqlite_where=sa.text("claim_expires_at IS NOT NULL"),
        postgresql_where=sa.text("claim_expires_at IS NOT NULL"),
    )
    op.create_index(
        "ix_reviews_closed_at",
        "reviews",
        ["closed_at"],
        unique=False,
        sqlite_where=sa.text("closed_at IS NOT NULL"),
        postgresql_where=sa.text("closed_at IS NOT NULL"),
    )
    op.create_index("ix_reviews_feed_status", "reviews", ["status", "updated_at", "id"], unique=False)
    op.create_index(
        "ix_reviews_feed_category",
        "reviews",
        ["category", "status", "updated_at", "id"],
        unique=False,
        sqlite_where=sa.text("category IS NOT NULL"),
        postgresql_where=sa.text("category IS NOT NULL"),
    )
    op.create_index(
        "ix_reviews_feed_project",
        "reviews",
        ["project", "status", "updated_at", "id"],
        unique=False,
        sqlite_where=sa.text("project IS NOT NULL"),
        postgresql_where=sa.text("project IS NOT NULL"),
    )
    op.create_index(
        "ix_reviews_needs_human",
        "reviews",
        ["rank", "created_at", "id"],
        unique=False,
        sqlite_where=sa.text("needs_human IS NOT NULL"),
        postgresql_where=sa.text("needs_human IS NOT NULL"),
    )
    op.create_index("ix_reviews_order", "reviews", ["rank", "created_at", "id"], unique=False)
    op.create_index(
        "ix_reviews_parent_id",
        "reviews",
        ["parent_id", "rank", "created_at", "id"],
        unique=False,
        sqlite_where=sa.text("parent_id IS NOT NULL"),
        postgresql_where=sa.text("parent_id IS NOT NULL"),
    )
    op.create_index("ix_reviews_phase", "reviews", ["phase", "rank", "created_at", "id"], unique=False)
    op.create_index(
        "ix_reviews_plan",
        "reviews",
        ["plan", "rank", "created_at", "id"],
        unique=False,
        sqlite_where=sa.text('"plan" IS NOT NULL'),
        postgresql_where=sa.text('"plan" IS NOT NULL'),
    )
    op.create_index(
        "ix_reviews_project",
        "reviews",
        ["project", "status", "rank", "created_at", "id"],
        unique=False,
        sqlite_where=sa.text("project IS NOT NULL"),
        postgresql_where=sa.text("project IS NOT NULL"),
    )
    op.create_index(
        "ix_reviews_proposer_id",
        "reviews",
        ["proposer_id", "rank", "created_at", "id"],
        unique=False,
        sqlite_where=sa.text("proposer_id IS NOT NULL"),
        postgresql_where=sa.text("proposer_id IS NOT NULL"),
    )
    op.create_index(
        "ix_reviews_reserved_until",
        "reviews",
        ["reserved_until"],
        unique=False,
        sqlite_where=sa.text("reserved_until IS NOT NULL"),
        postgresql_where=sa.text("reserved_until IS NOT NULL"),
    )
    op.create_index("ix_reviews_status", "reviews", ["status", "rank", "created_at", "id"], unique=False)
    op.create_table(
        "counter_patches",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("review_id", sa.String(length=32), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("diff", sa.LargeBinary(), nullable=False),
        sa.Column("affected_files", sa.Text(), nullable=False),
        sa.Column("offered_by", sa.String(length=256), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["review_id"], ["reviews.id"], name=op.f("fk_counter_patches_review_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_counter_patches")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_counter_patches_review_id", "counter_patches", ["review_id", "id"], unique=False)
    op.create_table(
        "findings",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("review_id", sa.String(length=32), nullable=False),
        sa.Column("raised_by", sa.String(length=256), nullable=False),
        sa.Column("raised_in_round", sa.Integer(), nullable=False),
        sa.Column("raised_at_revision", sa.Integer(), nullable=False),
        sa.Column("times_raised", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=True),
        sa.Column("line_start", sa.Integer(), nullable=True),
        sa.Column("line_end", sa.Integer(), nullable=True),
        sa.Column("side", sa.String(length=32), nullable=False),
        sa.Column("severity", sa.String(length=32), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("suggestion", sa.Text(), nullable=True),
        sa.Column("confidence", sa.Float(), nullable=True),
        sa.Column("anchor", sa.String(length=32), nullable=False),
        sa.Column("anchor_text", sa.Text(), nullable=True),
        sa.Column("disposition", sa.String(length=32), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["review_id"], ["reviews.id"], name=op.f("fk_findings_review_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_findings")),
    )
    op.create_index("ix_findings_review_id", "findings", ["review_id", "created_at", "id"], unique=False)
    op.create_table(
        "messages",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("review_id", sa.String(length=32), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("sender_role", sa.String(length=32), nullable=False),
        sa.Column("sender", sa.String(length=256), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=True),
        sa.Column("line", sa.Integer(), nullable=True),
        sa.Column("in_reply_to", sa.Integer(), nullable=True),
        sa.Column("metadata", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["review_id"], ["reviews.id"], name=op.f("fk_messages_review_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_messages")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_messages_review_id", "messages", ["review_id", "id"], unique=False)
    op.create_table(
        "revisions",
        sa.Column("review_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("intent", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("diff", sa.LargeBinary(), nullable=True),
        sa.Column("skip_diff_validation", sa.Boolean(), nullable=False),
        sa.Column("affected_files", sa.Text(), nullable=False),
        sa.Column("author", sa.String(length=256), nullable=False),
        sa.Column("written_by", sa.String(length=256), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["review_id"], ["reviews.id"], name=op.f("fk_revisions_review_id")),
        sa.PrimaryKeyConstraint("review_id", "number", name=op.f("pk_revisions")),
    )
    op.bulk_insert(
        sa.table("audit_head", sa.column("id"), sa.column("sequence"), sa.column("hash")),
        [{"id": 1, "sequence": 0, "hash": "0" * 64}],
    )
    _create_pool_tables()


def _create_pool_tables() -> None:
    op.create_table(
        "reviewers",
        sa.Column("id", sa.String(length=256), nullable=False),
        sa.Column("display_name", sa.String(length=256), nullable=False),
        sa.Column("agent", sa.String(length=32), nullable=False),
        sa.Column("model", sa.String(length=256), nullable=True),
        sa.Column("project", sa.String(length=256), nullable=True),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("host", sa.String(length=256), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("process_start", sa.String(length=256), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("drained_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("end_reason", sa.String(length=32), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("reviews_completed", sa.Integer(), nullable=False),
        sa.Column("reviews_approved", sa.Integer(), nullable=False),
        sa.Column("review_milliseconds", sa.BigInteger(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=True),
        sa.Column("output_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reviewers")),
    )
    op.create_index("ix_reviewers_ended_at", "reviewers", ["ended_at", "started_at"], unique=False)
    op.create_index("ix_reviewers_started_at", "reviewers", ["started_at"], unique=False)
    op.create_table(
        "reviewer_work",
        sa.Column("review_id", sa.String(length=32), nullable=False),
        sa.Column("claim_generation", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("reviewer_id", sa.String(length=256), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("outcome", sa.String(length=32), nullable=True),
        sa.Column("input_tokens", sa.BigInteger(), nullable=True),
        sa.Column("output_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("review_id", "claim_generation", name=op.f("pk_reviewer_work")),
    )
    op.create_index("ix_reviewer_work_reviewer_id", "reviewer_work", ["reviewer_id", "claimed_at"], unique=False)
    op.create_index("ix_reviewer_work_ended_at", "reviewer_work", ["ended_at"], unique=False)
    op.create_table(
        "review_failures",
        sa.Column("review_id", sa.String(length=32), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("retry_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("review_id", name=op.f("pk_review_failures")),
    )
    op.create_table(
        "pool_switches",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("on", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_pool_switches")),
    )
