CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0008');
CREATE TABLE approved_paths (
	path_key VARCHAR(64) NOT NULL,
	old_id VARCHAR(64) NOT NULL,
	review_id VARCHAR(32) NOT NULL,
	CONSTRAINT pk_approved_paths PRIMARY KEY (path_key, old_id, review_id)
)
 WITHOUT ROWID;
CREATE TABLE audit_gaps (
	first INTEGER NOT NULL,
	last BIGINT NOT NULL,
	previous_hash VARCHAR(64) NOT NULL,
	hash VARCHAR(64) NOT NULL,
	CONSTRAINT pk_audit_gaps PRIMARY KEY (first),
	CONSTRAINT uq_audit_gaps_last UNIQUE (last)
);
CREATE TABLE audit_head (
	id SMALLINT NOT NULL,
	sequence BIGINT NOT NULL,
	hash VARCHAR(64) NOT NULL,
	CONSTRAINT pk_audit_head PRIMARY KEY (id)
);
INSERT INTO "audit_head" VALUES(1,0,'0000000000000000000000000000000000000000000000000000000000000000');
CREATE TABLE brokers (
	id VARCHAR(256) NOT NULL,
	heartbeat_at BIGINT NOT NULL,
	CONSTRAINT pk_brokers PRIMARY KEY (id)
);
CREATE TABLE counter_patches (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	review_id VARCHAR(32) NOT NULL,
	revision INTEGER NOT NULL,
	round INTEGER NOT NULL,
	diff BLOB NOT NULL,
	affected_files TEXT NOT NULL,
	offered_by VARCHAR(256) NOT NULL,
	status VARCHAR(32) NOT NULL,
	reason TEXT,
	created_at BIGINT NOT NULL,
	CONSTRAINT fk_counter_patches_review_id FOREIGN KEY(review_id) REFERENCES reviews (id)
);
CREATE TABLE counters (
	scope VARCHAR(256) NOT NULL,
	name VARCHAR(32) NOT NULL,
	"key" VARCHAR(1024) NOT NULL,
	value BIGINT NOT NULL,
	CONSTRAINT pk_counters PRIMARY KEY (scope, name, "key")
)
 WITHOUT ROWID;
CREATE TABLE events (
	id INTEGER NOT NULL,
	review_id VARCHAR(32),
	event_type VARCHAR(32) NOT NULL,
	actor VARCHAR(256) NOT NULL,
	old_status VARCHAR(32),
	new_status VARCHAR(32),
	metadata TEXT NOT NULL,
	timestamp BIGINT NOT NULL,
	previous_hash VARCHAR(64) NOT NULL,
	hash VARCHAR(64) NOT NULL,
	CONSTRAINT pk_events PRIMARY KEY (id)
);
CREATE TABLE findings (
	id VARCHAR(32) NOT NULL,
	review_id VARCHAR(32) NOT NULL,
	position INTEGER NOT NULL,
	raised_by VARCHAR(256) NOT NULL,
	raised_in_round INTEGER NOT NULL,
	raised_at_revision INTEGER NOT NULL,
	times_raised INTEGER NOT NULL,
	path TEXT,
	line_start INTEGER,
	line_end INTEGER,
	side VARCHAR(32) NOT NULL,
	severity VARCHAR(32) NOT NULL,
	title TEXT NOT NULL,
	body TEXT NOT NULL,
	suggestion TEXT,
	confidence FLOAT,
	anchor VARCHAR(32) NOT NULL,
	anchor_text TEXT,
	disposition VARCHAR(32) NOT NULL,
	note TEXT,
	created_at BIGINT NOT NULL,
	CONSTRAINT pk_findings PRIMARY KEY (id),
	CONSTRAINT fk_findings_review_id FOREIGN KEY(review_id) REFERENCES reviews (id)
);
CREATE TABLE gate_overrides (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	repository VARCHAR(64),
	folder TEXT NOT NULL,
	person VARCHAR(256) NOT NULL,
	reason TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	until BIGINT NOT NULL
);
CREATE TABLE histogram_buckets (
	scope VARCHAR(256) NOT NULL,
	name VARCHAR(32) NOT NULL,
	bucket INTEGER NOT NULL,
	count BIGINT NOT NULL,
	total BIGINT NOT NULL,
	least BIGINT NOT NULL,
	most BIGINT NOT NULL,
	CONSTRAINT pk_histogram_buckets PRIMARY KEY (scope, name, bucket)
)
 WITHOUT ROWID;
CREATE TABLE histograms (
	scope VARCHAR(256) NOT NULL,
	name VARCHAR(32) NOT NULL,
	total BIGINT NOT NULL,
	least BIGINT NOT NULL,
	most BIGINT NOT NULL,
	buckets BLOB NOT NULL,
	CONSTRAINT pk_histograms PRIMARY KEY (scope, name)
);
CREATE TABLE idempotency_keys (
	project VARCHAR(256) NOT NULL,
	tool VARCHAR(32) NOT NULL,
	"key" VARCHAR(256) NOT NULL,
	arguments_hash VARCHAR(64) NOT NULL,
	result TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	CONSTRAINT pk_idempotency_keys PRIMARY KEY (project, tool, "key")
);
CREATE TABLE landed_commits (
	folder TEXT NOT NULL,
	commit_id VARCHAR(64) NOT NULL,
	branch TEXT NOT NULL,
	digest VARCHAR(80) NOT NULL,
	subject TEXT NOT NULL,
	because VARCHAR(32),
	reviews TEXT NOT NULL,
	override_id INTEGER,
	landed_at BIGINT NOT NULL,
	CONSTRAINT pk_landed_commits PRIMARY KEY (folder, commit_id)
);
CREATE TABLE messages (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	review_id VARCHAR(32) NOT NULL,
	round INTEGER NOT NULL,
	sender_role VARCHAR(32) NOT NULL,
	sender VARCHAR(256) NOT NULL,
	body TEXT NOT NULL,
	path TEXT,
	line INTEGER,
	in_reply_to INTEGER,
	metadata TEXT,
	created_at BIGINT NOT NULL,
	CONSTRAINT fk_messages_review_id FOREIGN KEY(review_id) REFERENCES reviews (id)
);
CREATE TABLE pool_switches (
	name VARCHAR(32) NOT NULL,
	"on" BOOLEAN NOT NULL,
	CONSTRAINT pk_pool_switches PRIMARY KEY (name)
);
CREATE TABLE review_failures (
	review_id VARCHAR(32) NOT NULL,
	failures INTEGER NOT NULL,
	retry_at BIGINT NOT NULL,
	CONSTRAINT pk_review_failures PRIMARY KEY (review_id)
);
CREATE TABLE reviewed_changes (
	review_id VARCHAR(32) NOT NULL,
	revision INTEGER NOT NULL,
	digest VARCHAR(80) NOT NULL,
	repository VARCHAR(64),
	folder TEXT NOT NULL,
	records BLOB NOT NULL,
	proposer VARCHAR(256),
	reviewer VARCHAR(256),
	approved_at BIGINT,
	receipt TEXT,
	landed_at BIGINT,
	CONSTRAINT pk_reviewed_changes PRIMARY KEY (review_id)
);
CREATE TABLE reviewer_work (
	review_id VARCHAR(32) NOT NULL,
	claim_generation INTEGER NOT NULL,
	reviewer_id VARCHAR(256) NOT NULL,
	claimed_at BIGINT NOT NULL,
	ended_at BIGINT,
	outcome VARCHAR(32),
	input_tokens BIGINT,
	output_tokens BIGINT,
	cost_usd FLOAT,
	CONSTRAINT pk_reviewer_work PRIMARY KEY (review_id, claim_generation)
);
CREATE TABLE reviewers (
	id VARCHAR(256) NOT NULL,
	display_name VARCHAR(256) NOT NULL,
	agent VARCHAR(32) NOT NULL,
	model VARCHAR(256),
	project VARCHAR(256),
	state VARCHAR(32) NOT NULL,
	host VARCHAR(256) NOT NULL,
	pid INTEGER NOT NULL,
	process_start VARCHAR(256),
	started_at BIGINT NOT NULL,
	broker_id VARCHAR(256),
	drained_at BIGINT,
	ended_at BIGINT,
	end_reason VARCHAR(32),
	exit_code INTEGER,
	reviews_completed INTEGER NOT NULL,
	reviews_approved INTEGER NOT NULL,
	review_milliseconds BIGINT NOT NULL,
	input_tokens BIGINT,
	output_tokens BIGINT,
	cost_usd FLOAT,
	CONSTRAINT pk_reviewers PRIMARY KEY (id)
);
CREATE TABLE reviews (
	id VARCHAR(32) NOT NULL,
	status VARCHAR(32) NOT NULL,
	version INTEGER NOT NULL,
	revision INTEGER NOT NULL,
	round INTEGER NOT NULL,
	claim_generation INTEGER NOT NULL,
	agent_type VARCHAR(256) NOT NULL,
	agent_role VARCHAR(32) NOT NULL,
	phase VARCHAR(256) NOT NULL,
	"plan" VARCHAR(256),
	task VARCHAR(256),
	category VARCHAR(32),
	priority VARCHAR(32) NOT NULL,
	rank SMALLINT NOT NULL,
	project VARCHAR(256),
	workspace TEXT,
	proposer_id VARCHAR(256),
	parent_id VARCHAR(32),
	created_at BIGINT NOT NULL,
	intent TEXT NOT NULL,
	has_diff BOOLEAN NOT NULL,
	author VARCHAR(256) NOT NULL,
	digest VARCHAR(80),
	claimed_by VARCHAR(256),
	claimed_at BIGINT,
	claim_expires_at BIGINT,
	reserved_for VARCHAR(256),
	reserved_until BIGINT,
	verdict VARCHAR(32),
	verdict_reason TEXT,
	outcome VARCHAR(32),
	open_finding_count INTEGER NOT NULL,
	counter_patch_status VARCHAR(32),
	needs_human TEXT,
	updated_at BIGINT NOT NULL,
	closed_at BIGINT,
	entered_at BIGINT NOT NULL,
	first_claimed_at BIGINT,
	first_verdict_at BIGINT,
	last_verdict VARCHAR(32),
	message_count INTEGER NOT NULL,
	last_message_at BIGINT,
	last_message_preview TEXT,
	proposer_key VARCHAR(256) NOT NULL,
	author_key VARCHAR(256) NOT NULL,
	reserved_key VARCHAR(256),
	CONSTRAINT pk_reviews PRIMARY KEY (id)
);
CREATE TABLE revisions (
	review_id VARCHAR(32) NOT NULL,
	number INTEGER NOT NULL,
	intent TEXT NOT NULL,
	description TEXT,
	diff BLOB,
	skip_diff_validation BOOLEAN NOT NULL,
	affected_files TEXT NOT NULL,
	author VARCHAR(256) NOT NULL,
	written_by VARCHAR(256) NOT NULL,
	created_at BIGINT NOT NULL,
	CONSTRAINT pk_revisions PRIMARY KEY (review_id, number),
	CONSTRAINT fk_revisions_review_id FOREIGN KEY(review_id) REFERENCES reviews (id)
);
CREATE TABLE sign_in_links (
	hash VARCHAR(64) NOT NULL,
	sealed_token TEXT NOT NULL,
	page TEXT NOT NULL,
	expires_at BIGINT NOT NULL,
	CONSTRAINT pk_sign_in_links PRIMARY KEY (hash)
);
CREATE TABLE tokens (
	hash VARCHAR(64) NOT NULL,
	name VARCHAR(256) NOT NULL,
	name_key VARCHAR(256) NOT NULL,
	role VARCHAR(32) NOT NULL,
	project VARCHAR(256),
	created_at BIGINT NOT NULL,
	created_by VARCHAR(256) NOT NULL,
	expires_at BIGINT,
	revoked_at BIGINT,
	CONSTRAINT pk_tokens PRIMARY KEY (hash)
);
CREATE INDEX ix_events_review_id ON events (review_id, id);
CREATE INDEX ix_idempotency_keys_created_at ON idempotency_keys (created_at);
CREATE INDEX ix_reviews_category ON reviews (category, rank, created_at, id) WHERE category IS NOT NULL;
CREATE INDEX ix_reviews_claim_expires_at ON reviews (claim_expires_at) WHERE claim_expires_at IS NOT NULL;
CREATE INDEX ix_reviews_closed_at ON reviews (closed_at) WHERE closed_at IS NOT NULL;
CREATE INDEX ix_reviews_feed_status ON reviews (status, updated_at, id);
CREATE INDEX ix_reviews_feed_category ON reviews (category, status, updated_at, id) WHERE category IS NOT NULL;
CREATE INDEX ix_reviews_feed_project ON reviews (project, status, updated_at, id) WHERE project IS NOT NULL;
CREATE INDEX ix_reviews_needs_human ON reviews (rank, created_at, id) WHERE needs_human IS NOT NULL;
CREATE INDEX ix_reviews_order ON reviews (rank, created_at, id);
CREATE INDEX ix_reviews_parent_id ON reviews (parent_id, rank, created_at, id) WHERE parent_id IS NOT NULL;
CREATE INDEX ix_reviews_phase ON reviews (phase, rank, created_at, id);
CREATE INDEX ix_reviews_plan ON reviews ("plan", rank, created_at, id) WHERE "plan" IS NOT NULL;
CREATE INDEX ix_reviews_project ON reviews (project, status, rank, created_at, id) WHERE project IS NOT NULL;
CREATE INDEX ix_reviews_proposer_id ON reviews (proposer_id, rank, created_at, id) WHERE proposer_id IS NOT NULL;
CREATE INDEX ix_reviews_reserved_until ON reviews (reserved_until) WHERE reserved_until IS NOT NULL;
CREATE INDEX ix_reviews_status ON reviews (status, rank, created_at, id);
CREATE INDEX ix_counter_patches_review_id ON counter_patches (review_id, id);
CREATE INDEX ix_messages_review_id ON messages (review_id, id);
CREATE INDEX ix_reviewer_work_reviewer_id ON reviewer_work (reviewer_id, claimed_at);
CREATE INDEX ix_reviewer_work_ended_at ON reviewer_work (ended_at);
CREATE INDEX ix_findings_review_id ON findings (review_id, position);
CREATE INDEX ix_reviewers_ended_at ON reviewers (ended_at, started_at);
CREATE INDEX ix_reviewers_started_at ON reviewers (started_at);
CREATE INDEX ix_reviewed_changes_never_landed ON reviewed_changes (approved_at) WHERE approved_at IS NOT NULL AND landed_at IS NULL;
CREATE INDEX ix_gate_overrides_until ON gate_overrides (until);
CREATE INDEX ix_landed_commits_landed_at ON landed_commits (landed_at);
CREATE INDEX ix_landed_commits_without_approval ON landed_commits (landed_at) WHERE reviews = '[]';
CREATE INDEX ix_tokens_created_at ON tokens (created_at);
CREATE UNIQUE INDEX ix_tokens_name_key ON tokens (name_key) WHERE revoked_at IS NULL;
CREATE INDEX ix_sign_in_links_expires_at ON sign_in_links (expires_at)
