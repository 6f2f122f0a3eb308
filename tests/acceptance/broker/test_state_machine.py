"""Every tool in any order, over HTTP and on a SQLite file: the broker and a model of the contract agree."""

import itertools
import signal
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support import model_machine as model
from tests.support.invariants import problems
from tests.support.local import PROPOSAL
from tests.support.mcp import Mcp, ToolError
from tests.support.model_machine import Modelled
from tests.support.processes import BrokerProcess, make_repository
from tests.support.texts import BETTER, GOOD, STALE

BOTH = "both-sides"
REVIEWERS = ("codex", "claude", BOTH)
PROPOSERS = (None, "alice", BOTH, "human:ada")
STILL_OPEN = ("pending", "claimed", "in_review", "approved", "changes_requested")
EVERYWHERE = (*STILL_OPEN, "closed")
ANYTHING = (
    "revise",
    "claim_review",
    "release_claim",
    "submit_verdict",
    "add_message",
    "close_review",
    "accept_counter_patch",
    "reject_counter_patch",
)
MOST_OPEN = 4
DIFFS = {"good": GOOD, "bad": STALE, "none": None}
UNFIT = (STALE, "no diff at all")
_projects = itertools.count(1)

reviewers = st.sampled_from(REVIEWERS)
proposers = st.sampled_from(PROPOSERS)
diffs = st.sampled_from(("good", "good", "none", "bad"))
verdicts = st.sampled_from(("changes_requested", "comment", "approved"))
patches = st.sampled_from((None, BETTER, None, BETTER, *UNFIT))
picks = st.integers(0, 11)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Generator[BrokerProcess]:
    """One for all examples; when it has stopped, its database has to be whole."""
    folder = tmp_path_factory.mktemp("machine")
    (folder / "home").mkdir()
    with BrokerProcess(make_repository(folder / "repository"), home=folder / "home") as running:
        yield running
        assert running.stop(signal.SIGTERM) == 0
        assert problems(running.database) == []


class Machine(RuleBasedStateMachine):
    """Each example is a project of its own, so that claim_next sees only this example's reviews.

    `go_on` takes a review one step that is possible where it stands, so that examples go deep; `call_anything`
    makes any call, under any name, wherever the review is. Of their arguments each step takes what it needs."""

    def __init__(self, client: Mcp) -> None:
        super().__init__()
        self.client = client
        self.project = f"project-{next(_projects)}"
        # In the order of their creation, which is the order in which they are handed out.
        self.modelled: dict[str, Modelled] = {}
        self.titles = (f"remark {number}" for number in itertools.count(1))

    # Choosing, calling, comparing.

    def any_of(self, pick: int, statuses: tuple[str, ...] = EVERYWHERE) -> str:
        found = [review_id for review_id, review in self.modelled.items() if review.status in statuses]
        return found[pick % len(found)]

    def call(self, tool: str, expected: str | None, **arguments: Any) -> dict[str, Any]:
        """Answered as the model says; a refusal gives an empty result."""
        result, refusal = self.asked(tool, arguments)
        said = f"{tool} {arguments}: {refusal or result}, and the contract says {expected}"
        assert (refusal and refusal.code) == expected, said
        assert refusal is None or refusal.hint, said
        return result

    def asked(self, tool: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], ToolError | None]:
        try:
            return self.client(tool, **arguments), None
        except ToolError as refusal:
            return {}, refusal

    def step(self, tool: str, review_id: str, **arguments: Any) -> dict[str, Any]:
        """One call on one review, on both sides. What is None is left out."""
        arguments = {name: value for name, value in arguments.items() if value is not None}
        after, expected = model.TOOLS[tool](self.modelled[review_id], **arguments)
        result = self.call(tool, expected, review_id=review_id, **arguments)
        self.modelled[review_id] = after
        assert model.differences(result, after) == {}, (tool, arguments)
        self.compare(review_id)
        return result

    def compare(self, review_id: str) -> None:
        expected = self.modelled[review_id]
        status = self.client("get_review_status", review_id=review_id)
        assert model.differences(status, expected) == {}
        timeline = self.client("get_review_timeline", review_id=review_id)
        told = [event["metadata"] for event in timeline["events"]]
        generations = [facts["claim_generation"] for facts in told if "claim_generation" in facts]
        assert generations[-1] == expected.generation
        assert generations == sorted(generations)

    # What the rules are made of.

    def created(self, owner: str | None, diff: str) -> None:
        result = self.client("create_review", **self.proposal(owner, diff))
        review_id = result["review_id"]
        self.modelled[review_id] = Modelled(owner=owner, author=owner or model.AGENT, applies=diff != "bad")
        assert model.differences(result, self.modelled[review_id]) == {}
        self.compare(review_id)

    def proposal(self, proposer_id: str | None, diff: str) -> dict[str, Any]:
        optional = {"proposer_id": proposer_id, "diff": DIFFS[diff]}
        given = {name: value for name, value in optional.items() if value is not None}
        return {**PROPOSAL, "project": self.project, **given}

    def revised(self, review_id: str, caller: str | None, diff: str) -> None:
        after, expected = model.revise(self.modelled[review_id], proposer_id=caller, applies=diff != "bad")
        result = self.call("create_review", expected, review_id=review_id, **self.proposal(caller, diff))
        self.modelled[review_id] = after
        assert model.differences(result, after) == {}
        self.compare(review_id)

    def claimed(self, review_id: str, reviewer: str) -> None:
        applies = self.modelled[review_id].applies
        result = self.step("claim_review", review_id, reviewer_id=reviewer)
        assert result == {} or result.get("auto_rejected", False) is not applies

    def judged(self, review_id: str, *, verdict: str, remark: bool, **arguments: Any) -> None:
        finding = {"title": next(self.titles), "body": "look", "severity": "low", "path": "hello.txt"}
        findings = [finding] if remark else None
        result = self.step("submit_verdict", review_id, verdict=verdict, findings=findings, **arguments)
        assert result == {} or result["verdict"] == verdict

    def refused_with_its_counter_patch(self, review_id: str, patch: str) -> None:
        events = self.client("get_review_timeline", review_id=review_id)["event_count"]
        generation = self.modelled[review_id].generation
        arguments = {"verdict": "changes_requested", "reason": "so", "claim_generation": generation}
        self.call("submit_verdict", "diff_invalid", review_id=review_id, counter_patch=patch, **arguments)
        assert self.client("get_review_timeline", review_id=review_id)["event_count"] == events
        self.compare(review_id)

    def closed(self, review_id: str, caller: str | None, role: str | None) -> None:
        before = self.modelled[review_id].status
        result = self.step("close_review", review_id, closer_role=role, proposer_id=caller)
        outcome = before if before in {"approved", "changes_requested"} else "withdrawn"
        assert result == {} or result["outcome"] == outcome

    def said(self, review_id: str, role: str) -> None:
        sender = "codex" if role == "reviewer" else None
        self.step("add_message", review_id, sender_role=role, body="why so?", sender_id=sender)

    # The rules.

    @initialize(owner=proposers)
    def begin(self, owner: str | None) -> None:
        self.call("claim_review", "not_found", review_id="0" * 16, reviewer_id="codex")
        self.created(owner, "good")

    @precondition(lambda self: sum(review.status != "closed" for review in self.modelled.values()) < MOST_OPEN)
    @rule(owner=proposers, diff=diffs)
    def create(self, owner: str | None, diff: str) -> None:
        self.created(owner, diff)

    @precondition(lambda self: any(review.status != "closed" for review in self.modelled.values()))
    @rule(pick=picks, choice=st.integers(0, 6), verdict=verdicts, diff=diffs, patch=patches, remark=st.booleans())
    def go_on(self, pick: int, choice: int, verdict: str, diff: str, patch: str | None, remark: bool) -> None:
        review_id = self.any_of(pick, STILL_OPEN)
        review = self.modelled[review_id]
        match review.status, choice:
            case "pending", _:
                others = [name for name in REVIEWERS if name not in {review.proposer, review.author}]
                self.claimed(review_id, review.kept_for or others[choice % len(others)])
            case _, 0:
                self.said(review_id, "reviewer")
            case "claimed" | "in_review" | "changes_requested", 1 | 2 if review.counter_patch == "pending":
                answer = "accept_counter_patch" if choice == 1 else "reject_counter_patch"
                self.step(answer, review_id, proposer_id=review.owner)
            case "changes_requested", _:
                self.revised(review_id, review.owner, diff)
            case "approved", _:
                self.closed(review_id, review.owner, None)
            case _, 3:
                self.step("release_claim", review_id, claim_generation=review.generation)
            case _ if patch in UNFIT:
                self.refused_with_its_counter_patch(review_id, patch)
            case _:
                self.judged(
                    review_id,
                    verdict=verdict,
                    remark=remark,
                    reason="because",
                    claim_generation=review.generation,
                    counter_patch=patch if verdict != "approved" else None,
                )

    @rule(
        tool=st.sampled_from(ANYTHING),
        pick=picks,
        proposer=proposers,
        reviewer=reviewers,
        behind=st.sampled_from((0, 1, 2, -1)),
        named=st.sampled_from(("by generation", "by name", "by both", "not at all")),
        verdict=verdicts,
        diff=diffs,
        role=st.sampled_from(("proposer", "reviewer")),
    )
    def call_anything(
        self,
        tool: str,
        pick: int,
        proposer: str | None,
        reviewer: str,
        behind: int,
        named: str,
        verdict: str,
        diff: str,
        role: str,
    ) -> None:
        review_id = self.any_of(pick)
        generation = self.modelled[review_id].generation - behind
        match tool:
            case "revise":
                self.revised(review_id, proposer, diff)
            case "claim_review":
                self.claimed(review_id, reviewer)
            case "release_claim":
                self.step(tool, review_id, claim_generation=generation)
            case "submit_verdict":
                self.judged(
                    review_id,
                    verdict=verdict,
                    remark=pick % 2 == 0,
                    reason={0: " ", 1: None}.get(pick, "because"),
                    reviewer_id=reviewer if named in {"by name", "by both"} else None,
                    claim_generation=generation if named in {"by generation", "by both"} else None,
                )
            case "add_message":
                self.said(review_id, role)
            case "close_review":
                self.closed(review_id, proposer, role)
            case _:
                self.step(tool, review_id, proposer_id=proposer)

    @rule(reviewer=reviewers)
    def claim_next(self, reviewer: str) -> None:
        expected = None
        for review_id, before in self.modelled.items():
            if not model.may_be_claimed(before, reviewer):
                continue
            self.modelled[review_id], _ = model.claim_review(before, reviewer_id=reviewer)
            if before.applies:
                expected = review_id
                break
        for review_id, review in self.modelled.items():
            if (review.claimed_by, review.status) == (reviewer, "claimed") and review_id != expected:
                # It has used its claims, so none of them is given again.
                self.client("get_proposal", review_id=review_id, caller_id=reviewer)
        result = self.client("claim_next", reviewer_id=reviewer, project=self.project)
        assert (result["claimed"], result.get("review_id")) == (expected is not None, expected)
        for review_id in self.modelled:
            self.compare(review_id)

    @precondition(lambda self: any(r.findings and r.status != "closed" for r in self.modelled.values()))
    @rule(pick=picks, disposition=st.sampled_from(("fixed", "deferred", "rejected")))
    def resolve(self, pick: int, disposition: str) -> None:
        found = [id_ for id_, review in self.modelled.items() if review.findings and review.status != "closed"]
        review_id = found[pick % len(found)]
        known = self.client("get_discussion", review_id=review_id)["findings"]
        finding = known[pick % len(known)]
        after, expected = model.resolve_finding(self.modelled[review_id], title=finding["title"])
        arguments = {"finding_id": finding["finding_id"], "disposition": disposition, "note": "on purpose"}
        result = self.call("resolve_finding", expected, review_id=review_id, **arguments)
        assert result == {} or result["disposition"] == disposition
        self.modelled[review_id] = after
        self.compare(review_id)

    def teardown(self) -> None:
        for review_id in self.modelled:
            timeline = self.client("get_review_timeline", review_id=review_id)
            status = self.client("get_review_status", review_id=review_id)
            assert timeline["event_count"] == len(timeline["events"]) == status["version"]
            self.compare(review_id)


def agree(broker: BrokerProcess, *, examples: int, steps: int, derandomize: bool) -> None:
    client = broker.client()
    chosen = settings(
        max_examples=examples,
        derandomize=derandomize,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    try:
        run_state_machine_as_test(lambda: Machine(client), settings=chosen)
    finally:
        client.close()


def test_the_broker_does_what_the_contract_says_in_any_order_of_calls(broker: BrokerProcess) -> None:
    agree(broker, examples=15, steps=25, derandomize=True)


@pytest.mark.torture
def test_the_broker_does_what_the_contract_says_in_many_orders_of_calls(broker: BrokerProcess) -> None:
    agree(broker, examples=1_500, steps=50, derandomize=False)
