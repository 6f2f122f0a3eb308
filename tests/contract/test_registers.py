"""Each field stands in every register that it belongs to, or in a list here that says why not.

Whoever adds a field, a filter, or an argument that names an identity, and forgets one of the places that must follow,
fails here.
"""

import collections
import dataclasses
import re
import types
import typing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gsd_review_broker
from gsd_review_broker.cli import describe
from gsd_review_broker.cli.broker.watching import exit_of
from gsd_review_broker.cli.commands import all_modules, gsd, propose
from gsd_review_broker.cli.describe import STATUS_STYLES
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.main import build
from gsd_review_broker.domain import audit
from gsd_review_broker.domain.model import (
    AffectedFile,
    CounterPatch,
    Draft,
    Event,
    Finding,
    Message,
    Origin,
    Review,
    Revision,
    field_names,
)
from gsd_review_broker.domain.rules import claims, discussion, pool
from gsd_review_broker.domain.rules.pool import JUDGED
from gsd_review_broker.domain.rules.proposals import FIXED, NOT_IN_EVENTS
from gsd_review_broker.domain.rules.transitions import (
    FACTS,
    STEPS,
    files_text,
    hash_of_counter_patch,
    hash_of_message,
    hash_of_revision,
)
from gsd_review_broker.domain.rules.verdicts import _COMMANDS
from gsd_review_broker.domain.tally import Totals
from gsd_review_broker.domain.words import (
    AGENTS,
    CLIENTS,
    PROPOSERS_TURN,
    REVIEWERS_TURN,
    VENDORS,
    Audience,
    CallerKind,
    CounterPatchStatus,
    EventType,
    Operation,
    Role,
    Severity,
    Status,
    TokenRole,
    Verdict,
    WorkOutcome,
    proposer_must_act,
)
from gsd_review_broker.errors import BrokerError
from gsd_review_broker.integrations.clients import every_client
from gsd_review_broker.mcp.tools import REGISTRY
from gsd_review_broker.pool.agents import module_of
from gsd_review_broker.ports.store import ReviewFilter, ReviewSummary
from gsd_review_broker.service import access
from gsd_review_broker.service.commands.proposals import NewProposal
from gsd_review_broker.service.wire.content import CounterPatchResult, FindingResult, MessageResult, Proposal
from gsd_review_broker.service.wire.encoding import make_cursor, read_cursor
from gsd_review_broker.service.wire.reviews import EventResult, FeedRow, ReviewRow
from gsd_review_broker.service.wire.statistics import ReviewerVerdicts
from gsd_review_broker.store import reads, rows
from gsd_review_broker.web.conversation import _SENTENCES, _VERDICTS
from gsd_review_broker.web.text import STATUS_MARKS
from tests.support import reviews

# Fields of a review that no fact of an event repeats: replay derives them from the events themselves.
DERIVED = {
    *("id", "status", "version", "verdict_reason", "message_count", "last_verdict"),
    *("created_at", "updated_at", "claimed_at", "closed_at", "entered_at"),
    *("first_claimed_at", "first_verdict_at", "last_message_at"),
}
# Fields of a review that the audit does not prove, and why.
UNPROVEN = {
    "workspace": "a path of this machine is not for everybody who watches",
    "claim_expires_at": "moves with each call of the claimant and with the wall clock",
    "reserved_for": "a courtesy of one minute",
    "reserved_until": "a courtesy of one minute",
    "last_message_preview": "the message itself is proven by its hash",
}


def test_every_field_of_a_review_is_in_one_register_of_the_audit() -> None:
    registers = [set(FACTS), set(FIXED), DERIVED, set(UNPROVEN)]
    assert set().union(*registers) == set(field_names(Review))
    assert sum(map(len, registers)) == len(field_names(Review)), "a field is in two registers"


def life() -> tuple[Review, list[Event], list[str]]:
    """A review that has been through most of what can happen, and its events."""
    created = reviews.created(project="p", plan="2", task="3", proposer_id=reviews.PROPOSER)
    claim = claims.claim(
        created.review, reviewer=reviews.REVIEWER, digest=reviews.DIGEST, policy=reviews.POLICY, now=reviews.NOW
    )
    message = reviews.message(claim.review)
    sent = discussion.send_message(claim.review, message=message, policy=reviews.POLICY, now=reviews.LATER)
    judged = reviews.judged(sent.review, Verdict.CHANGES_REQUESTED)
    closed = reviews.closed(judged.review, caller=reviews.PROPOSER)
    new = [event for change in (created, claim, sent, judged, closed) for event in change.events]
    events = [
        Event(**{name: getattr(event, name) for name in field_names(type(event))}, id=number, previous_hash="", hash="")
        for number, event in enumerate(new, 1)
    ]
    return closed.review, events, [hash_of_message(message)]


def problems(review: Review, events: list[Event], messages: list[str]) -> list[str]:
    contents = {
        EventType.REVIEW_REVISED: [hash_of_revision(reviews.revision())],
        EventType.MESSAGE_SENT: messages,
    }
    stored = audit.Stored(review=review, contents=contents, counter_patches=[], findings=[])
    return list(audit.check_reviews(events, [stored], collections.defaultdict(Totals)))


def test_a_review_as_its_events_tell_it_has_no_problem() -> None:
    assert problems(*life()) == []


@pytest.mark.parametrize("name", sorted({*FACTS, *FIXED, *DERIVED}))
def test_a_changed_field_of_a_review_is_found_by_the_audit(name: str) -> None:
    review, events, messages = life()
    assert problems(replace(review, **{name: "0" * 16}), events, messages)


def test_creation_fixes_every_field_of_the_origin_that_may_be_told() -> None:
    assert set(FIXED) == {*field_names(Origin), "priority"} - NOT_IN_EVENTS


# What the audit proves of a finding: its words whenever it is raised, and how it was resolved.
UNPROVEN_OF_FINDINGS = {
    *("id", "review_id", "raised_by", "raised_in_round", "raised_at_revision", "times_raised", "created_at"),
    *("path", "line_start", "line_end", "side", "anchor", "anchor_text", "position"),
}


def test_every_field_of_a_finding_is_proven_or_named_as_unproven() -> None:
    assert {*audit._WORDS, "disposition", "note"} | UNPROVEN_OF_FINDINGS == set(field_names(Finding))


FILES = (
    AffectedFile(
        path="b", operation=Operation.RENAME, added=1, removed=2, old_path="a", binary=True, old_mode="1", new_mode="2"
    ),
)
OTHER_VALUES: dict[str, Any] = {
    **dict.fromkeys(("intent", "description", "author", "written_by", "sender", "body", "path", "offered_by"), "other"),
    **dict.fromkeys(("number", "round", "revision", "line", "in_reply_to"), 99),
    "diff": b"other",
    "skip_diff_validation": True,
    "affected_files": FILES,
    "sender_role": Role.PROPOSER,
    "metadata": {"other": 1},
}
# Where a row belongs and when it came is in its event; a counter-patch's end is told by later events.
TOLD_BY_EVENTS = {"id", "review_id", "created_at"}


def hashed() -> list[tuple[Any, Callable[[Any], str], str]]:
    review = reviews.claimed()
    rows_of: list[tuple[Any, Callable[[Any], str], set[str]]] = [
        (reviews.revision(), hash_of_revision, TOLD_BY_EVENTS),
        (reviews.message(review), hash_of_message, TOLD_BY_EVENTS),
        (reviews.counter_patch(review), hash_of_counter_patch, TOLD_BY_EVENTS | {"status", "reason"}),
    ]
    return [(row, hash_, name) for row, hash_, told in rows_of for name in field_names(type(row)) if name not in told]


@pytest.mark.parametrize(("row", "hash_", "name"), hashed(), ids=lambda part: part if isinstance(part, str) else "")
def test_every_field_of_what_stands_beside_a_review_is_in_its_hash(
    row: Any, hash_: Callable[[Any], str], name: str
) -> None:
    assert hash_(replace(row, **{name: OTHER_VALUES[name]})) != hash_(row)


def test_every_field_of_an_affected_file_is_stored() -> None:
    defaults = {one.name for one in dataclasses.fields(AffectedFile) if getattr(FILES[0], one.name) == one.default}
    assert defaults == set(), "give the sample a value that is not the default"
    assert rows._files_from(files_text(FILES)) == FILES


STORED = {
    Review: rows.REVIEWS,
    Revision: rows.REVISIONS,
    Message: rows.MESSAGES,
    CounterPatch: rows.COUNTER_PATCHES,
    Finding: rows.FINDINGS,
    Event: rows.EVENTS,
}


def parts(hint: Any) -> list[Any]:
    is_union = typing.get_origin(hint) in {typing.Union, types.UnionType}
    return list(typing.get_args(hint)) if is_union else [hint]


@pytest.mark.parametrize("kind", STORED, ids=lambda kind: kind.__name__)
def test_a_field_that_is_not_stored_as_it_is_has_a_converter(kind: type) -> None:
    plain = {str, int, float, bytes, types.NoneType}
    hints = typing.get_type_hints(kind)
    needed = {
        name
        for name, hint in hints.items()
        if any(getattr(part, "__supertype__", part) not in plain for part in parts(hint))
    }
    assert STORED[kind]._conversions.keys() == needed


# By model: what is shown under another name, and what is not shown.
SHOWN = [
    (Finding, FindingResult, {"id": "finding_id", "raised_in_round": "round"},
     {"review_id", "raised_at_revision", "anchor_text", "created_at", "position"}),
    (Message, MessageResult, {"id": "message_id", "sender": "sender_id"}, {"review_id"}),
    (CounterPatch, CounterPatchResult, {"id": "counter_patch_id", "affected_files": "paths"}, {"review_id"}),
    (Event, EventResult, {}, {"previous_hash", "hash"}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "shown", "renamed", "hidden"), SHOWN, ids=lambda kind: getattr(kind, "__name__", ""))
def test_every_field_is_shown_or_named_as_hidden(
    kind: type, shown: type, renamed: dict[str, str], hidden: set[str]
) -> None:
    expected = {renamed.get(name, name) for name in field_names(kind) if name not in hidden}
    assert set(typing.get_type_hints(shown)) == expected


def test_a_page_shows_every_field_of_a_summary_in_its_order() -> None:
    assert tuple(typing.get_type_hints(FeedRow)) == ReviewSummary._fields


class NamesRead(dict[str, Any]):
    """Notes which of its names are read."""

    def __init__(self, **values: Any) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)


# Columns that neither `tandem list` nor the dashboard's list shows; both have them as JSON or on the review's page.
LEFT_OUT_OF_LISTS = {
    *("version", "revision", "agent_role", "phase", "plan", "task", "parent_id", "has_diff", "verdict", "created_at"),
}


def test_every_column_of_the_list_is_shown_or_named_as_left_out() -> None:
    columns = set(typing.get_type_hints(ReviewRow))
    # Once as a pending review without a proposer_id, once as a claimed one.
    rows_of = [NamesRead(**dict.fromkeys(columns, value)) for value in ("", "text")]
    for shown in rows_of:
        describe.row(shown, short=True)
    page = (Path(gsd_review_broker.__file__).parent / "web" / "templates" / "parts.html").read_text()
    read = {*(name for shown in rows_of for name in shown.read), *re.findall(r"\brow\.(\w+)", page)}
    assert read & columns == columns - LEFT_OUT_OF_LISTS


def test_a_proposal_shows_every_field_of_its_origin_and_its_draft() -> None:
    # A proposal has one author for both; who wrote an accepted counter-patch is in the events.
    shown = {*field_names(Origin), *field_names(Draft)} - {"author", "written_by"}
    assert shown <= set(typing.get_type_hints(Proposal))


def parameters(tool: str) -> set[str]:
    return set(REGISTRY.shown_to(Audience.ALL)[tool].arguments.model_fields)


def test_create_review_takes_every_field_of_a_proposal() -> None:
    fields = {*field_names(Origin), *field_names(NewProposal)} - {"origin"}
    assert parameters("create_review") == fields | {"review_id", "idempotency_key"}


def test_list_reviews_takes_every_filter() -> None:
    # The service adds these: the moment, whether the caller is of the pool, and the inbox's own choice.
    filters = set(field_names(ReviewFilter)) - {"claimable_by", "claimable_at", "for_pool", "only_live"}
    assert parameters("list_reviews") == filters | {"reviewer_id", "wait", "wait_seconds", "limit", "cursor"}


def test_the_store_reads_every_filter() -> None:
    by_hand = {"needs_human", "only_live", "claimable_by", "claimable_at", "for_pool"}
    assert {*reads._EQUAL} | by_hand == set(field_names(ReviewFilter))


@pytest.mark.parametrize("name", field_names(ReviewFilter))
def test_a_cursor_is_bound_to_every_filter(name: str) -> None:
    cursor = make_cursor(ReviewFilter(), [0, 0, "a"])
    with pytest.raises(BrokerError, match="other arguments"):
        read_cursor(cursor, replace(ReviewFilter(), **{name: "other"}))
    assert read_cursor(cursor, ReviewFilter()) == [0, 0, "a"]


# Every other argument of a tool. Who adds one decides whether it says who acts.
NAMES_NOBODY = {
    *("review_id", "parent_id", "finding_id", "idempotency_key", "cursor", "after", "since", "limit", "wait"),
    *("wait_seconds", "intent", "description", "diff", "phase", "plan", "task", "category", "project", "workspace"),
    *("agent_role", "closer_role", "sender_role", "skip_diff_validation", "reason", "verdict", "claim_generation"),
    *("counter_patch", "findings", "status", "needs_human", "body", "path", "line", "in_reply_to", "metadata", "round"),
    *("revision", "since_revision", "disposition", "note", "agent", "force"),
}


def test_every_argument_that_names_who_acts_is_guarded() -> None:
    arguments = {name for tool in REGISTRY.shown_to(Audience.ALL) for name in parameters(tool)}
    assert arguments - NAMES_NOBODY == set(access._ACTING_WHEN_WRITING)


STATUS_TABLES = {
    "the marks of the dashboard": set(STATUS_MARKS),
    "the colours of the command line": set(STATUS_STYLES),
    "the words of the status line and the end": {*gsd._WORDS, Status.CLOSED},
    "whose turn it is": {*PROPOSERS_TURN, *REVIEWERS_TURN},
}


@pytest.mark.parametrize("table", STATUS_TABLES)
def test_every_status_is_in_every_table_of_statuses(table: str) -> None:
    assert STATUS_TABLES[table] == set(Status)


VERDICT_TABLES = {
    "the rule's commands": set(_COMMANDS),
    "the statistics of a reviewer": set(typing.get_type_hints(ReviewerVerdicts)) - {"reviewer"},
    "the words of the timeline": {*_VERDICTS, Verdict.COMMENT},
}


@pytest.mark.parametrize("table", VERDICT_TABLES)
def test_every_verdict_is_in_every_table_of_verdicts(table: str) -> None:
    assert VERDICT_TABLES[table] == set(Verdict)


# Shown in the colour of other text.
WITHOUT_COLOUR = {Severity.LOW}


def test_every_severity_has_a_colour() -> None:
    style = (Path(gsd_review_broker.__file__).parent / "web" / "static" / "style.css").read_text()
    coloured = {name for rule in re.findall(r"^([^{\n]*){ --mark:", style, re.MULTILINE) for name in rule.split(", ")}
    assert {severity for severity in Severity if f".{severity}" not in map(str.strip, coloured)} == WITHOUT_COLOUR


def test_every_role_of_a_token_is_a_kind_of_caller() -> None:
    assert set(CallerKind) - set(TokenRole) == {CallerKind.LOCAL, CallerKind.UNKNOWN}


@pytest.mark.parametrize("name", [*AGENTS, *CLIENTS])
def test_the_vendor_of_every_agent_and_client_is_decided(name: str) -> None:
    """None, if it can use any vendor's model."""
    assert name.split("-", maxsplit=1)[0] in VENDORS


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.COMMENT])
def test_every_deciding_verdict_ends_the_work_and_makes_it_the_proposers_turn(verdict: Verdict) -> None:
    assert WorkOutcome(verdict.value) in JUDGED
    decided = STEPS[_COMMANDS[verdict]].target
    assert decided is not None
    assert proposer_must_act(decided, None)
    assert exit_of({"status": decided, "verdict": verdict}) in {Exit.DONE, Exit.REFUSED}


def test_a_comment_decides_nothing() -> None:
    assert STEPS[_COMMANDS[Verdict.COMMENT]].target is None


@pytest.mark.parametrize("status", Status)
def test_an_open_counter_patch_makes_it_the_proposers_turn(status: Status) -> None:
    assert proposer_must_act(status, CounterPatchStatus.PENDING)
    assert proposer_must_act(status, None) == (status in PROPOSERS_TURN)


def test_a_status_that_only_a_newer_broker_knows_is_a_failure() -> None:
    assert exit_of({"status": "escalated", "verdict": None}) is Exit.FAILED


def test_every_event_has_a_sentence_in_the_timeline() -> None:
    assert {*_SENTENCES, EventType.VERDICT_SUBMITTED} == set(EventType)


# Events that do to a review none of what the register says. A new event stands in the register or in its list here.
ABOUT_NO_REVIEW = {
    *(EventType.AUDIT_CHECKPOINT, EventType.REVIEWER_SPAWNED, EventType.REVIEWER_DRAIN_START),
    *(EventType.REVIEWER_TERMINATED, EventType.GATE_REFUSED, EventType.GATE_OVERRIDDEN, EventType.ACCESS_REFUSED),
}
BESIDE_THE_STATE = {
    *(EventType.VERDICT_REFUSED, EventType.FINDING_RESOLVED, EventType.MESSAGE_SENT, EventType.COUNTER_PATCH_OFFERED),
    *(EventType.COUNTER_PATCH_REJECTED, EventType.HUMAN_REQUESTED, EventType.HUMAN_CLEARED, EventType.COMMIT_LANDED),
}
CLAIM_GOES_ON = {EventType.REVIEW_CREATED, EventType.REVIEW_REVISED, EventType.REVIEW_CLAIMED, *BESIDE_THE_STATE}
EVENT_REGISTERS = {
    "gives or clears a verdict's reason": (
        {*audit._GIVES_REASON, *audit._CLEARS_REASON},
        {EventType.REVIEW_CREATED, EventType.REVIEW_CLAIMED, EventType.REVIEW_CLOSED, *BESIDE_THE_STATE},
    ),
    "brings a revision": (
        audit._REVISIONS,
        {
            *(EventType.REVIEW_CLAIMED, EventType.REVIEW_AUTO_REJECTED, EventType.REVIEW_RELEASED),
            *(EventType.REVIEW_RECLAIMED, EventType.VERDICT_SUBMITTED, EventType.VERDICT_COMMENT),
            *(EventType.REVIEW_CLOSED, *BESIDE_THE_STATE),
        },
    ),
    "ends the work of a pool's reviewer": (
        # A verdict ends it by its own outcome; a diff that does not apply was never claimed.
        {*pool._ENDS, EventType.VERDICT_SUBMITTED},
        {EventType.VERDICT_COMMENT, EventType.REVIEW_AUTO_REJECTED, *CLAIM_GOES_ON},
    ),
}


@pytest.mark.parametrize("register", EVENT_REGISTERS)
def test_every_event_is_in_each_register_of_events_or_named_as_left_out(register: str) -> None:
    named, left_out = EVENT_REGISTERS[register]
    assert named | left_out | ABOUT_NO_REVIEW == set(EventType)
    assert not named & (left_out | ABOUT_NO_REVIEW)


def test_every_agent_has_a_module_with_what_a_start_needs() -> None:
    for agent in AGENTS:
        module = module_of(agent)
        assert callable(module.launch)
        assert all(isinstance(name, str) for name in module.ENVIRONMENT)


def test_every_client_is_known_by_the_name_of_its_module() -> None:
    assert tuple(client.name for client in every_client()) == CLIENTS


def test_every_module_of_commands_has_a_command() -> None:
    assert {*all_modules()} == names_in("cli", "commands")


def test_the_dashboard_has_the_routes_of_every_page() -> None:
    imported = {
        module.rpartition(".")[2] for module in re.findall(r"web\.pages\.\w+", source("web", "pages", "dashboard.py"))
    }
    assert imported == names_in("web", "pages") - {"dashboard"}


def test_every_variable_of_propose_is_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    monkeypatch.setattr(propose, "_from_environment", asked.add)
    build(("propose",))
    assert asked
    reference = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    variables = {"TANDEM_" + flag.removeprefix("--").upper().replace("-", "_") for flag in asked}
    assert {name for name in variables if f"`{name}`" not in reference or name not in propose._DETAILS} == set()


def source(*place: str) -> str:
    return Path(gsd_review_broker.__file__).parent.joinpath(*place).read_text()


def names_in(*place: str) -> set[str]:
    folder = Path(gsd_review_broker.__file__).parent.joinpath(*place)
    return {path.stem for path in folder.glob("*.py")} - {"__init__"}
