"""Many clients at once, over HTTP: one winner, clear codes for the others, and nothing half done."""

import asyncio
import itertools
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.invariants import problems
from tests.support.local import PROPOSAL, LocalBroker, local_broker
from tests.support.mcp import AsyncMcp, ToolError
from tests.support.model_machine import LIVE, Called, Modelled, claim_review, explained, submit_verdict
from tests.support.processes import BrokerProcess, make_repository
from tests.support.texts import BETTER, GOOD, STALE, change_line

SEED = int(os.environ.get("RACE_SEED") or random.SystemRandom().randrange(2**32))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Generator[BrokerProcess]:
    """One for all races; when it has stopped, its database has to be whole."""
    folder = tmp_path_factory.mktemp("races")
    (folder / "home").mkdir()
    with BrokerProcess(make_repository(folder / "repository"), home=folder / "home") as running:
        yield running
        assert running.stop(signal.SIGTERM) == 0
        assert problems(running.database) == []


@pytest.fixture
async def call(broker: BrokerProcess) -> AsyncGenerator[AsyncMcp]:
    """Any number of calls at once, each on a connection of its own."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield AsyncMcp(session, broker.port)


async def answer(called: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    """The result, or {"code": …} of the refusal."""
    try:
        return await called
    except ToolError as refusal:
        return {"code": refusal.code}


async def at_once(*calls: Callable[[], Awaitable[dict[str, Any]]]) -> list[dict[str, Any]]:
    """All wait for the last to be ready, then go."""
    barrier = asyncio.Barrier(len(calls))

    async def one(called: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        await barrier.wait()
        return await answer(called())

    return await asyncio.gather(*(one(called) for called in calls))


async def events_of(call: AsyncMcp, review_id: str) -> list[dict[str, Any]]:
    return (await call("get_audit_log", review_id=review_id, limit=500))["events"]


async def claimed(call: AsyncMcp, **proposal: Any) -> tuple[str, dict[str, Any]]:
    review_id = (await call("create_review", **PROPOSAL, **proposal))["review_id"]
    return review_id, await call("claim_review", review_id=review_id, reviewer_id="codex")


# One winner.


async def one_winner_of_64(call: AsyncMcp, *, rounds: int, with_diff_every: int) -> None:
    for number in range(rounds):
        content = {"diff": GOOD} if number % with_diff_every == 0 else {}
        review_id = (await call("create_review", **PROPOSAL, **content))["review_id"]
        names = [f"reviewer-{index}" for index in range(64)]
        answers = await at_once(
            *(partial(call, "claim_review", review_id=review_id, reviewer_id=name) for name in names)
        )
        winners = [(name, said) for name, said in zip(names, answers, strict=True) if "code" not in said]
        assert len(winners) == 1
        name, claim = winners[0]
        assert (claim["claimed_by"], claim["claim_generation"], claim["status"]) == (name, 1, "claimed")
        assert [said["code"] for said in answers if "code" in said] == ["already_claimed"] * 63
        told = [event["event_type"] for event in await events_of(call, review_id)]
        assert told == ["review_created", "review_claimed"]


async def test_of_64_clients_that_claim_one_review_one_wins(call: AsyncMcp) -> None:
    await one_winner_of_64(call, rounds=30, with_diff_every=6)


@pytest.mark.torture
async def test_of_64_clients_that_claim_one_review_one_wins_a_thousand_times(call: AsyncMcp) -> None:
    await one_winner_of_64(call, rounds=1_000, with_diff_every=10)


async def test_64_clients_that_wait_for_work_share_it_without_overlap(call: AsyncMcp) -> None:
    project = "shared-work"
    waiting = [
        asyncio.create_task(
            call("claim_next", reviewer_id=f"reviewer-{index}", project=project, wait=True, wait_seconds=20)
        )
        for index in range(64)
    ]
    made = await asyncio.gather(*(call("create_review", **PROPOSAL, project=project) for _ in range(64)))
    claims = await asyncio.gather(*waiting)
    assert all(claim["claimed"] for claim in claims)
    assert {claim["review_id"] for claim in claims} == {review["review_id"] for review in made}


async def test_a_diff_that_does_not_apply_is_rejected_once_however_many_claim_it(call: AsyncMcp) -> None:
    review_id = (await call("create_review", **PROPOSAL, diff=STALE))["review_id"]
    answers = await at_once(
        *(partial(call, "claim_review", review_id=review_id, reviewer_id=f"reviewer-{i}") for i in range(16))
    )
    assert Counter(said.get("code", "auto-rejected") for said in answers) == {
        "auto-rejected": 1,
        "invalid_transition": 15,
    }
    told = [event["event_type"] for event in await events_of(call, review_id)]
    assert told == ["review_created", "review_auto_rejected"]


# An approval and what it is about.


async def after(call: AsyncMcp, review_id: str, reads: int, tool: str, **arguments: Any) -> dict[str, Any]:
    """The call, a little later: so that either side of a race comes first now and then."""
    for _ in range(reads):
        await call("get_review_status", review_id=review_id)
    return await call(tool, review_id=review_id, **arguments)


Rival = tuple[str, dict[str, Any]]
RIVALS: dict[str, Rival] = {
    "an accepted counter-patch": ("accept_counter_patch", {}),
    "a withdrawal": ("close_review", {}),
    "a release": ("release_claim", {"claim_generation": 1}),
}


@pytest.mark.parametrize("name", RIVALS)
async def test_an_approval_that_races_lands_on_what_was_claimed_or_not_at_all(call: AsyncMcp, name: str) -> None:
    tool, arguments = RIVALS[name]
    chance = random.Random(SEED)
    for _ in range(12):
        review_id, claim = await claimed(call, diff=GOOD)
        await call(
            "submit_verdict",
            review_id=review_id,
            verdict="comment",
            reason="or rather so",
            claim_generation=1,
            counter_patch=BETTER,
        )
        late = partial(after, call, review_id)
        approve, rival = await at_once(
            partial(late, chance.randrange(12), "submit_verdict", verdict="approved", claim_generation=1),
            partial(late, chance.randrange(12), tool, **arguments),
        )
        status = await call("get_review_status", review_id=review_id)
        verdicts = [event for event in await events_of(call, review_id) if event["event_type"] == "verdict_submitted"]
        if "code" in approve:
            assert (approve["code"], verdicts, status["verdict"]) == ("stale_claim", [], None)
            assert status["status"] == {"close_review": "closed"}.get(tool, "pending")
            continue
        assert (approve["revision"], approve["digest"]) == (claim["revision"], claim["digest"])
        assert [event["metadata"]["digest"] for event in verdicts] == [claim["digest"]]
        assert (status["verdict"], status["revision"]) == ("approved", 1)
        # Closing an approval is no withdrawal; the others come too late.
        assert (rival.get("code"), rival.get("outcome")) == (
            (None, "approved") if tool == "close_review" else ("invalid_transition", None)
        )


async def test_an_approval_that_races_a_revision_never_lands(call: AsyncMcp) -> None:
    codes: Counter[str] = Counter()
    chance = random.Random(SEED)
    for _ in range(12):
        review_id, _claim = await claimed(call, diff=GOOD)
        verdict = {"verdict": "changes_requested", "reason": "no", "claim_generation": 1}
        await call("submit_verdict", review_id=review_id, **verdict)
        late = partial(after, call, review_id)
        approve, revise, another = await at_once(
            partial(late, chance.randrange(6), "submit_verdict", verdict="approve", claim_generation=1),
            partial(late, chance.randrange(6), "create_review", **PROPOSAL, diff=BETTER),
            partial(late, chance.randrange(6), "claim_review", reviewer_id="codex"),
        )
        codes[approve["code"]] += 1
        assert (revise["revision"], revise["round"]) == (2, 2)
        assert another.get("code", "claimed") in {"claimed", "invalid_transition"}
        status = await call("get_review_status", review_id=review_id)
        assert (status["verdict"], status["revision"]) == (None, 2)
    assert set(codes) <= {"stale_claim", "invalid_transition"}


# What the proposer answers to a counter-patch.


async def test_answers_to_a_counter_patch_that_race_leave_one_story(call: AsyncMcp) -> None:
    chance = random.Random(SEED)
    for _ in range(15):
        review_id, claim = await claimed(call, diff=GOOD)
        offer = {"verdict": "changes_requested", "reason": "so", "claim_generation": 1, "counter_patch": BETTER}
        again = {"verdict": "comment", "reason": "or so", "claim_generation": 1}
        first = offer if chance.random() < 0.5 else {**offer, "verdict": "comment"}
        await call("submit_verdict", review_id=review_id, **first)
        start, _ = submit_verdict(claim_review(Modelled(), reviewer_id="codex")[0], **first)
        assert claim["claim_generation"] == start.generation
        calls: list[tuple[str, dict[str, Any]]] = [
            ("accept_counter_patch", {}),
            ("reject_counter_patch", {}),
            ("submit_verdict", {**again, "counter_patch": change_line(new="dos")}),
            ("close_review", {}),
        ]
        chance.shuffle(calls)
        history = await recorded(call, review_id, [[one] for one in calls], reads=lambda: chance.randrange(5))
        history.append(await record(call, itertools.count(1_000), review_id, "get_review_status", {}))
        assert explained(history, start) is not None, history
        allowed = {None, "invalid_transition", "conflict", "stale_claim"}
        assert {one.code for one in history} <= allowed


# Time, and repetition.


async def test_a_reviewer_that_slept_past_its_deadline_cannot_judge_what_another_took(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        review_id = (await broker.create())["review_id"]
        first = await broker("claim_review", review_id=review_id, reviewer_id="codex")
        broker.clock.pass_time(1_201)
        assert await broker.sweep() == [review_id]
        second = await broker("claim_review", review_id=review_id, reviewer_id="claude")
        assert second["claim_generation"] > first["claim_generation"]
        late = await answer(
            broker("submit_verdict", review_id=review_id, verdict="approve", claim_generation=first["claim_generation"])
        )
        assert late == {"code": "stale_claim"}
        status = await broker("get_review_status", review_id=review_id)
        assert (status["status"], status["claimed_by"], status["verdict"]) == ("claimed", "claude", None)
        events = (await broker("get_audit_log", review_id=review_id))["events"]
        assert events[-1]["event_type"] == "verdict_refused"
        verdict = {"verdict": "approve", "claim_generation": second["claim_generation"]}
        assert (await broker("submit_verdict", review_id=review_id, **verdict))["status"] == "approved"
    assert problems(broker.database) == []


@pytest.mark.parametrize("look", range(1, 4))
async def test_a_claim_that_is_given_again_is_one_that_lives(tmp_path: Path, look: int) -> None:
    """The claim ends between any two looks at the database that its repetition takes."""
    async with local_broker(tmp_path) as broker:
        review_id = (await broker.create())["review_id"]
        await broker("claim_review", review_id=review_id, reviewer_id="codex")
        glance, looks = broker.store.glance, itertools.count(1)

        async def interrupted(query: Any) -> Any:
            if next(looks) == look:
                broker.store.glance = glance
                await broker("release_claim", review_id=review_id, claim_generation=1)
            return await glance(query)

        broker.store.glance = interrupted
        claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
        assert (claim["status"], claim["claimed_by"]) == ("claimed", "codex")
        assert claim["claim_generation"] in {1, 3}


async def test_the_deadline_and_a_verdict_that_race_leave_one_of_the_two(tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    async with local_broker(tmp_path) as broker:
        for order in ("sweep first", "verdict first") * 5:
            review_id = (await broker.create())["review_id"]
            await broker("claim_review", review_id=review_id, reviewer_id="codex")
            broker.clock.pass_time(1_201)
            verdict = partial(broker, "submit_verdict", review_id=review_id, verdict="approve", claim_generation=1)
            racing: list[Callable[[], Awaitable[Any]]] = [partial(swept, broker), verdict]
            answers = await at_once(*(racing if order == "sweep first" else racing[::-1]))
            said = answers[1 if order == "sweep first" else 0]
            status = (await broker("get_review_status", review_id=review_id))["status"]
            assert (said.get("code"), status) in {("stale_claim", "pending"), (None, "approved")}
            outcomes[status] += 1
    assert outcomes["approved"] > 0
    assert problems(broker.database) == []


async def swept(broker: LocalBroker) -> dict[str, Any]:
    return {"reclaimed": await broker.sweep()}


Repeatable = Callable[[AsyncMcp], Awaitable[tuple[str, dict[str, Any], str]]]


async def _a_creation(_: AsyncMcp) -> tuple[str, dict[str, Any], str]:
    return "create_review", {**PROPOSAL, "diff": GOOD}, "review_created"


async def _a_claim(call: AsyncMcp) -> tuple[str, dict[str, Any], str]:
    review_id = (await call("create_review", **PROPOSAL, diff=GOOD))["review_id"]
    return "claim_review", {"review_id": review_id, "reviewer_id": "codex"}, "review_claimed"


async def _an_automatic_rejection(call: AsyncMcp) -> tuple[str, dict[str, Any], str]:
    review_id = (await call("create_review", **PROPOSAL, diff=STALE))["review_id"]
    return "claim_review", {"review_id": review_id, "reviewer_id": "codex"}, "review_auto_rejected"


async def _a_claim_of_what_comes_next(call: AsyncMcp) -> tuple[str, dict[str, Any], str]:
    """The first in the queue does not apply and is passed over."""
    project = f"queue-{next(_keys)}"
    await call("create_review", **PROPOSAL, project=project, diff=STALE)
    await call("create_review", **PROPOSAL, project=project, diff=GOOD)
    return "claim_next", {"reviewer_id": "codex", "project": project}, "review_claimed"


async def _a_message(call: AsyncMcp) -> tuple[str, dict[str, Any], str]:
    review_id, _ = await claimed(call)
    return "add_message", {"review_id": review_id, "sender_role": "reviewer", "body": "why?"}, "message_sent"


async def _a_comment(call: AsyncMcp) -> tuple[str, dict[str, Any], str]:
    review_id, _ = await claimed(call)
    comment = {"review_id": review_id, "verdict": "comment", "reason": "hm", "claim_generation": 1}
    return "submit_verdict", {**comment, "counter_patch": BETTER}, "verdict_comment"


async def _a_release(call: AsyncMcp) -> tuple[str, dict[str, Any], str]:
    review_id, _ = await claimed(call)
    return "release_claim", {"review_id": review_id, "claim_generation": 1}, "review_released"


async def _a_revision(call: AsyncMcp) -> tuple[str, dict[str, Any], str]:
    review_id, _ = await claimed(call)
    verdict = {"verdict": "changes_requested", "reason": "no", "claim_generation": 1}
    await call("submit_verdict", review_id=review_id, **verdict)
    return "create_review", {**PROPOSAL, "review_id": review_id, "diff": BETTER}, "review_revised"


async def _an_acceptance(call: AsyncMcp) -> tuple[str, dict[str, Any], str]:
    _, comment, _ = await _a_comment(call)
    await call("submit_verdict", **comment)
    return "accept_counter_patch", {"review_id": comment["review_id"]}, "counter_patch_accepted"


async def _a_rejection(call: AsyncMcp) -> tuple[str, dict[str, Any], str]:
    _, comment, _ = await _a_comment(call)
    await call("submit_verdict", **comment)
    return "reject_counter_patch", {"review_id": comment["review_id"]}, "counter_patch_rejected"


async def _a_closing(call: AsyncMcp) -> tuple[str, dict[str, Any], str]:
    review_id = (await call("create_review", **PROPOSAL))["review_id"]
    return "close_review", {"review_id": review_id}, "review_closed"


REPEATABLE: tuple[Repeatable, ...] = (
    _a_creation,
    _a_claim,
    _an_automatic_rejection,
    _a_claim_of_what_comes_next,
    _a_message,
    _a_comment,
    _a_release,
    _a_revision,
    _an_acceptance,
    _a_rejection,
    _a_closing,
)
_keys = (f"key-{number}" for number in itertools.count())


@pytest.mark.parametrize("prepare", REPEATABLE, ids=lambda prepare: prepare.__name__.strip("_"))
async def test_one_key_from_16_clients_at_once_is_one_event_and_one_answer(call: AsyncMcp, prepare: Repeatable) -> None:
    tool, arguments, event_type = await prepare(call)
    repeated = {**arguments, "idempotency_key": next(_keys)}
    answers = await at_once(*(partial(call, tool, **repeated) for _ in range(16)))
    assert answers == [answers[0]] * 16
    assert "review_id" in answers[0]
    told = [event["event_type"] for event in await events_of(call, answers[0]["review_id"])]
    assert told.count(event_type) == 1
    assert await call(tool, **repeated) == answers[0]


# Linearizability.


async def record(
    call: AsyncMcp, ticks: "itertools.count[int]", review_id: str, tool: str, arguments: dict[str, Any]
) -> Called:
    """When it began and ended is counted, not timed: the order of ticks is the order of things here."""
    began = next(ticks)
    said = await answer(call(tool, review_id=review_id, **arguments))
    code = said.pop("code", None)
    return Called(began=began, ended=next(ticks), tool=tool, arguments=arguments, code=code, result=said)


async def recorded(
    call: AsyncMcp, review_id: str, scripts: list[list[tuple[str, dict[str, Any]]]], *, reads: Callable[[], int]
) -> list[Called]:
    """What each client called and was told, all clients at once."""
    ticks = itertools.count()
    barrier = asyncio.Barrier(len(scripts))

    async def client(script: list[tuple[str, dict[str, Any]]]) -> list[Called]:
        await barrier.wait()
        for _ in range(reads()):
            await call("get_review_status", review_id=review_id)
        return [await record(call, ticks, review_id, tool, arguments) for tool, arguments in script]

    histories = await asyncio.gather(*(client(script) for script in scripts))
    return [one for history in histories for one in history]


def a_script(chance: random.Random, name: str) -> list[tuple[str, dict[str, Any]]]:
    """Guesses at generations, since a client of a script does not look at what it was told."""

    def any_call() -> tuple[str, dict[str, Any]]:
        generation = chance.randrange(1, 6)
        return chance.choice(
            [
                ("claim_review", {"reviewer_id": name}),
                ("claim_review", {"reviewer_id": name}),
                ("release_claim", {"claim_generation": generation}),
                ("submit_verdict", {"verdict": "comment", "reason": "hm", "reviewer_id": name}),
                ("submit_verdict", {"verdict": "approved", "claim_generation": generation}),
                ("get_review_status", {}),
                ("get_review_status", {}),
            ]
        )

    return [any_call() for _ in range(5)]


async def linearizable(call: AsyncMcp, *, histories: int) -> None:
    print(f"RACE_SEED={SEED}")  # noqa: T201 - shown when it fails
    chance = random.Random(SEED)
    for _ in range(histories):
        review_id = (await call("create_review", **PROPOSAL))["review_id"]
        scripts = [a_script(chance, name) for name in ("codex", "claude", "gemini", "opencode")]
        history = await recorded(call, review_id, scripts, reads=lambda: 0)
        assert explained(history, Modelled()) is not None, "\n".join(map(str, history))


async def test_what_concurrent_clients_are_told_fits_one_order_of_their_calls(call: AsyncMcp) -> None:
    await linearizable(call, histories=50)


@pytest.mark.torture
async def test_what_concurrent_clients_are_told_fits_one_order_of_their_calls_for_hours(call: AsyncMcp) -> None:
    await linearizable(call, histories=3_000)


def test_the_checker_refuses_two_claims_of_one_review() -> None:
    both = [
        Called(began=0, ended=3, tool="claim_review", arguments={"reviewer_id": "codex"}, code=None, result={}),
        Called(began=1, ended=2, tool="claim_review", arguments={"reviewer_id": "claude"}, code=None, result={}),
    ]
    assert explained(both, Modelled()) is None
    assert explained(both[:1], Modelled()) == both[:1]


def test_the_checker_refuses_an_order_against_real_time() -> None:
    status = {"status": "pending", "counter_patch_status": None, "verdict": None}
    claim = Called(began=0, ended=1, tool="claim_review", arguments={"reviewer_id": "codex"}, code=None, result={})
    stale_read = Called(began=2, ended=3, tool="get_review_status", arguments={}, code=None, result=status)
    overlapping = Called(began=0, ended=3, tool="get_review_status", arguments={}, code=None, result=status)
    assert explained([claim, stale_read], Modelled()) is None
    assert explained([claim, overlapping], Modelled()) == [overlapping, claim]
    assert claim_review(Modelled(), reviewer_id="codex")[0].status in LIVE
