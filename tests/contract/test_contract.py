"""The names that clients depend on. The lists here are typed from the contract, not from the code."""

import json

import pytest

from gsd_review_broker.domain.words import Audience
from gsd_review_broker.mcp.tools import REGISTRY
from tests.contract.first_answers import FIRST_ANSWERS, first_answers_text
from tests.contract.page import PAGE, ROOT, SNAPSHOT, page, snapshot, snapshot_text
from tests.contract.settings import CONFIGURATION, configuration_page

PARAMETERS = {
    "create_review": "intent agent_type agent_role phase plan? task? category? description? diff? review_id? project? "
    "workspace? proposer_id? parent_id? skip_diff_validation? idempotency_key?",
    "get_review_status": "review_id wait? wait_seconds? since? caller_id?",
    "accept_counter_patch": "review_id proposer_id? idempotency_key?",
    "reject_counter_patch": "review_id reason? proposer_id? idempotency_key?",
    "close_review": "review_id closer_role? reason? proposer_id? idempotency_key?",
    "claim_next": "reviewer_id category? project? wait? wait_seconds? idempotency_key?",
    "claim_review": "review_id reviewer_id idempotency_key?",
    "get_proposal": "review_id revision? path? since_revision? cursor? caller_id?",
    "submit_verdict": "review_id verdict reason? reviewer_id? claim_generation? counter_patch? findings? "
    "idempotency_key?",
    "release_claim": "review_id claim_generation idempotency_key?",
    "list_reviews": "status? category? project? phase? plan? proposer_id? parent_id? needs_human? wait? wait_seconds? "
    "reviewer_id? limit? cursor?",
    "add_message": "review_id sender_role body sender_id? path? line? in_reply_to? metadata? idempotency_key?",
    "get_discussion": "review_id round? since? wait? wait_seconds? caller_id? limit? cursor?",
    "resolve_finding": "review_id finding_id disposition note? idempotency_key?",
    "get_activity_feed": "status? category? project? limit? cursor?",
    "get_review_stats": "project?",
    "get_audit_log": "review_id? after? limit?",
    "get_review_timeline": "review_id",
    "broker_status": "",
    "spawn_reviewer": "agent? project? idempotency_key?",
    "kill_reviewer": "reviewer_id force? idempotency_key?",
    "list_reviewers": "",
}
RESULTS = {
    "create_review": "review_id status revision priority affected_files",
    "get_review_status": "status version revision round claimed_by verdict verdict_reason open_finding_count "
    "counter_patch_status needs_human updated_at changed",
    "close_review": "status outcome",
    "claim_review": "review_id status claimed_by claimed_at claim_generation claim_expires_at intent description "
    "category priority project affected_files has_diff digest open_findings",
    "get_proposal": "diff next_cursor counter_patch counter_patch_affected_files counter_patch_status",
    "submit_verdict": "status verdict",
    "release_claim": "status",
    "list_reviews": "reviews next_cursor changed",
    "add_message": "message_id round status",
    "get_discussion": "messages findings next_cursor",
    "resolve_finding": "finding_id path line_start line_end side severity title body suggestion confidence anchor "
    "disposition",
    "get_activity_feed": "reviews next_cursor",
    "get_review_stats": "total_reviews by_status by_category approval_rate_pct rejection_rate_pct "
    "avg_time_to_verdict_seconds avg_review_duration_seconds avg_time_to_claim_seconds avg_time_in_state_seconds "
    "percentiles",
    "get_audit_log": "events",
    "get_review_timeline": "review_id intent current_status category events event_count",
    "broker_status": "version serves uptime_seconds queue oldest_pending_at last_activity_at waiting reviewers",
    "spawn_reviewer": "reviewer_id display_name pid",
    "kill_reviewer": "reviewer_id state",
    "list_reviewers": "reviewers",
}
EVERYWHERE = {"get_review_status", "get_proposal", "list_reviews", "get_discussion"}
ROLES = {
    Audience.PROPOSER: EVERYWHERE
    | {
        "create_review",
        "accept_counter_patch",
        "reject_counter_patch",
        "close_review",
        "add_message",
        "resolve_finding",
    },
    Audience.REVIEWER: EVERYWHERE
    | {"claim_next", "claim_review", "submit_verdict", "release_claim", "add_message", "resolve_finding"},
    Audience.OBSERVER: EVERYWHERE
    | {"get_activity_feed", "get_review_stats", "get_audit_log", "get_review_timeline", "broker_status"},
}
POOL = {"spawn_reviewer", "kill_reviewer", "list_reviewers"}
READS = ROLES[Audience.OBSERVER] | {"list_reviewers"}


def words(text: str) -> set[str]:
    return set(text.split())


def test_the_snapshot_is_what_the_code_says() -> None:
    assert SNAPSHOT.read_text() == snapshot_text(), "look at the change, then write it with make docs"


def test_the_tool_reference_is_current() -> None:
    assert PAGE.read_text() == page(), "make docs writes it again"


def test_what_is_answered_while_the_broker_starts_is_current() -> None:
    assert FIRST_ANSWERS.read_text() == first_answers_text(), "make docs writes it again"


def test_every_tool_takes_exactly_the_parameters_of_the_contract() -> None:
    said = {}
    for name, tool in snapshot()["tools"].items():
        schema = tool["input_schema"]
        required = set(schema.get("required", []))
        said[name] = {key if key in required else key + "?" for key in schema["properties"]}
    assert said == {name: set(words.split()) for name, words in PARAMETERS.items()}


@pytest.mark.parametrize("tool", sorted(RESULTS))
def test_every_result_has_the_keys_of_the_contract(tool: str) -> None:
    results = snapshot()["tools"][tool]["results"]
    known = {key for keys in results.values() for key in keys}
    assert set(RESULTS[tool].split()) <= known


@pytest.mark.parametrize("audience", sorted(ROLES))
def test_a_role_is_shown_what_it_uses(audience: Audience) -> None:
    assert set(REGISTRY.shown_to(audience)) == ROLES[audience]


def test_the_pools_tools_are_shown_on_the_whole_endpoint_alone() -> None:
    assert {name for name, tool in REGISTRY.shown_to(Audience.ALL).items() if not tool.audiences} == POOL


def test_annotations_say_what_is_true() -> None:
    for name, tool in snapshot()["tools"].items():
        said = tool["annotations"]
        assert said["read_only_hint"] is (name in READS), name
        assert said["open_world_hint"] is False
        # Nothing is ever deleted; Codex exec would not call a tool that says it destroys something.
        assert said["destructive_hint"] is False


@pytest.mark.parametrize("audience", sorted(ROLES))
def test_a_role_pays_for_at_most_8000_bytes_of_schema(audience: Audience) -> None:
    paid = sum(
        len(tool.name) + len((tool.wire.description or "").encode())
        + len(json.dumps(tool.wire.input_schema, separators=(",", ":")).encode())
        for tool in REGISTRY.shown_to(audience).values()
    )  # fmt: skip
    assert paid <= 8_000


def test_states_events_and_codes_are_the_contracts() -> None:
    said = snapshot()
    assert said["states"] == ["pending", "claimed", "in_review", "approved", "changes_requested", "closed"]
    assert set(said["events"]) == words(
        "review_created review_revised review_claimed review_auto_rejected review_released review_reclaimed "
        "verdict_submitted verdict_comment verdict_refused finding_resolved message_sent counter_patch_offered "
        "counter_patch_accepted counter_patch_rejected human_requested human_cleared review_closed reviewer_spawned "
        "reviewer_drain_start reviewer_terminated gate_refused gate_overridden commit_landed access_refused "
        # The contract's "pruning leaves a checkpoint", which names no event: ADR 6.
        "audit_checkpoint"
    )
    assert set(said["error_codes"]) == words(
        "not_found invalid_argument invalid_transition already_claimed stale_claim not_claimant self_review "
        "diff_invalid too_large conflict busy unauthenticated forbidden unavailable internal"
    )


def test_the_table_of_settings_is_current() -> None:
    assert CONFIGURATION.read_text() == configuration_page(), "run `make docs`"


def test_every_word_of_the_product_is_in_the_glossary() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text().lower()
    words = [
        "review",
        "revision",
        "claim",
        "claim_generation",
        "verdict",
        "finding",
        "counter-patch",
        "round",
        "digest",
        "reviewer",
        "proposer",
    ]
    states = snapshot()["states"]
    assert [word for word in [*words, *states] if f"**{word}**" not in text and f"`{word}`" not in text] == []
