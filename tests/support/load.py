"""Clients that propose, claim, talk and judge at random, each with its own log of what it was told (I1)."""

import http.client
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from gsd_review_broker.domain.model import Event
from tests.support.local import PROPOSAL
from tests.support.mcp import Mcp, ToolError
from tests.support.texts import BETTER, GOOD, STALE
from tests.support.waiting import PATIENCE

LOST_CONNECTION = (OSError, http.client.HTTPException)


@dataclass
class Acknowledged:
    """What one client was told has happened: the event that must tell of it, found by its own words."""

    event_type: str
    review_id: str
    facts: dict[str, Any]
    repeated: bool


@dataclass
class Load:
    """Clients that propose, claim, talk and judge until they are stopped, each keeping its own log."""

    # Of one broker, or of several on one database.
    ports: Sequence[int]
    seed: int
    clients: int = 6
    # Is the database stopped at times? Then calls may be refused with `unavailable`.
    may_be_unavailable: bool = False
    stopping: threading.Event = field(default_factory=threading.Event)
    reviews: list[str] = field(default_factory=list)
    acknowledged: list[Acknowledged] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    failures: list[BaseException] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.threads = [threading.Thread(target=self._run, args=(number,)) for number in range(self.clients)]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in self.threads)

    def _run(self, number: int) -> None:
        client = _Client(self, number)
        try:
            while not self.stopping.is_set():
                client.act()
        except BaseException as error:  # noqa: BLE001 - the test must hear of it
            self.failures.append(error)
        finally:
            client.mcp.close()

    def wait_for(self, more: int, *, deadline: float = PATIENCE) -> None:
        """Until clients were told of this many more writes, so that each kill hits a busy broker."""
        wanted, end = len(self.acknowledged) + more, time.monotonic() + deadline
        while len(self.acknowledged) < wanted:
            assert not self.failures, self.failures
            assert time.monotonic() < end, f"only {len(self.acknowledged)} of {wanted} were acknowledged"
            time.sleep(0.002)


class _Client:
    def __init__(self, load: Load, number: int) -> None:
        self.load = load
        self.random = random.Random(load.seed * 1_000 + number)
        self.name = f"reviewer-{number}"
        self._brokers = itertools.cycle(
            [load.ports[(number + more) % len(load.ports)] for more in range(len(load.ports))]
        )
        self.mcp = Mcp(next(self._brokers), timeout=PATIENCE)
        self.words = (f"{self.name} says {count};" for count in itertools.count())
        self.claims: dict[str, int] = {}
        self.acts: list[tuple[int, Callable[[], None]]] = [
            (3, self.create),
            (5, self.claim),
            (5, self.talk),
            (4, self.judge),
            (1, self.offer),
            (1, self.release),
            (2, self.revise),
            (2, self.accept),
            (1, self.close),
        ]

    def go_elsewhere(self) -> None:
        """To the next broker, if there is one."""
        self.mcp.close()
        self.mcp = Mcp(next(self._brokers), timeout=PATIENCE)

    def act(self) -> None:
        act = self.random.choices([act for _, act in self.acts], [weight for weight, _ in self.acts])[0]
        if act == self.create or self.load.reviews:
            act()

    def call(self, event_type: str, tool: str, facts: dict[str, Any], **arguments: Any) -> dict[str, Any] | None:
        """With a key it is repeated until it is answered; without one a lost answer is simply not known."""
        repeated = self.random.random() < 0.4
        if repeated:
            arguments["idempotency_key"] = f"{self.name}-{self.random.getrandbits(64)}"
        while True:
            try:
                result = self.mcp(tool, **arguments)
                break
            except ToolError as refusal:
                if refusal.code == "internal" or (refusal.code == "unavailable" and not self.load.may_be_unavailable):
                    raise
                if refusal.code != "unavailable" or not repeated or self.load.stopping.is_set():
                    return None
            except LOST_CONNECTION:
                self.go_elsewhere()
                if not repeated or self.load.stopping.is_set():
                    return None
            self.load.stopping.wait(0.01)
        kind = "review_auto_rejected" if result.get("auto_rejected") else event_type
        facts = {} if kind != event_type else {**facts, **{name: result[name] for name in facts if name in result}}
        self.load.acknowledged.append(Acknowledged(kind, result["review_id"], facts, repeated))
        return result

    def some(self) -> str:
        """The newest ones mostly, so that clients meet."""
        known = self.load.reviews
        return known[-1 - min(int(self.random.expovariate(0.3)), len(known) - 1)]

    def mine(self) -> tuple[str, int]:
        review_id = self.random.choice(list(self.claims)) if self.claims else self.some()
        return review_id, self.claims.get(review_id, 1)

    def word(self) -> str:
        said = next(self.words)
        self.load.asked[said] += 1
        return said

    def create(self) -> None:
        word = self.word()
        content = {**PROPOSAL, "intent": word, **self.random.choice([{}, {}, {}, {"diff": GOOD}, {"diff": STALE}])}
        result = self.call("review_created", "create_review", {"intent": word}, **content)
        if result is not None:
            self.load.reviews.append(result["review_id"])

    def claim(self) -> None:
        facts = {"claimed_by": self.name, "claim_generation": 0}
        result = self.call("review_claimed", "claim_review", facts, review_id=self.some(), reviewer_id=self.name)
        if result is not None and not result.get("auto_rejected"):
            self.claims[result["review_id"]] = result["claim_generation"]

    def talk(self) -> None:
        word = self.word()
        role = self.random.choice(["proposer", "reviewer"])
        self.call(
            "message_sent",
            "add_message",
            {"body_preview": word},
            review_id=self.some(),
            sender_role=role,
            sender_id=self.name,
            body=word,
        )

    def judge(self) -> None:
        word = self.word()
        review_id, generation = self.mine()
        verdict = self.random.choice(["approved", "changes_requested", "changes_requested", "comment"])
        arguments = {"review_id": review_id, "verdict": verdict, "claim_generation": generation, "reason": word}
        kind = "verdict_comment" if verdict == "comment" else "verdict_submitted"
        if self.random.random() < 0.3:
            arguments["findings"] = [{"title": word, "body": "look", "severity": "low"}]
        # A verdict repeated without a key is answered with its first reason, so the generation names it.
        facts = {"reason": word} if verdict == "comment" else {"verdict": verdict, "claim_generation": generation}
        self.call(kind, "submit_verdict", facts, **arguments)

    def offer(self) -> None:
        review_id, generation = self.mine()
        self.call(
            "counter_patch_offered",
            "submit_verdict",
            {},
            review_id=review_id,
            verdict="comment",
            reason=self.word(),
            claim_generation=generation,
            counter_patch=BETTER,
        )

    def release(self) -> None:
        review_id, generation = self.mine()
        facts = {"old_claimant": self.name, "claim_generation": generation + 1}
        if self.claims.pop(review_id, None) is not None:
            self.call("review_released", "release_claim", facts, review_id=review_id, claim_generation=generation)

    def revise(self) -> None:
        word = self.word()
        facts = {"intent": word, "revision": 0}
        self.call("review_revised", "create_review", facts, review_id=self.some(), **{**PROPOSAL, "intent": word})

    def accept(self) -> None:
        self.call("counter_patch_accepted", "accept_counter_patch", {"revision": 0}, review_id=self.some())

    def close(self) -> None:
        word = self.word()
        self.call("review_closed", "close_review", {"reason": word, "outcome": ""}, review_id=self.some(), reason=word)


def lost(load: Load, events: list[Event]) -> list[str]:
    """I1: what clients were told and the audit does not tell, or tells twice."""
    by_kind: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
    said: Counter[str] = Counter()
    for event in events:
        by_kind.setdefault((event.event_type.value, event.review_id), []).append(event.metadata)
        facts = event.metadata
        said.update({str(facts.get(name)) for name in ("body_preview", "reason", "intent") if facts.get(name)})
    found: list[str] = []
    for told in load.acknowledged:
        candidates = by_kind.get((told.event_type, told.review_id), [])
        fitting = [facts for facts in candidates if told.facts.items() <= facts.items()]
        if not fitting:
            found.append(f"lost: {told}")
    # Whatever was said, once or until it was answered, happened at most once.
    return found + [f"{times} times: {word}" for word, times in said.items() if word in load.asked and times > 1]
