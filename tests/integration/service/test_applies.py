"""Whether a revision applies: asked once for all who ask at the same time, and new for each who decides by it."""

import asyncio
from collections.abc import Generator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gsd_review_broker.ports.world import Applies, DoesNotApply
from gsd_review_broker.service import applies
from tests.support.local import LocalBroker
from tests.support.mcp import ToolError
from tests.support.processes import git
from tests.support.spans import names, recorded_spans
from tests.support.texts import GOOD


@pytest.fixture
def spans() -> Generator[InMemorySpanExporter]:
    with recorded_spans() as recorded:
        yield recorded


def checks(spans: InMemorySpanExporter) -> int:
    return names(spans).count("git.check")


async def proposed(broker: LocalBroker, diff: str = GOOD) -> str:
    return (await broker.create(diff=diff))["review_id"]


async def test_many_who_claim_at_the_same_time_ask_git_once(spans: InMemorySpanExporter, broker: LocalBroker) -> None:
    review_id = await proposed(broker)
    claims = [broker("claim_review", review_id=review_id, reviewer_id=f"reviewer-{number}") for number in range(8)]
    outcomes = await asyncio.gather(*claims, return_exceptions=True)
    assert sum(isinstance(outcome, ToolError) for outcome in outcomes) == 7
    assert checks(spans) == 1


async def test_a_page_asks_once_in_a_while_and_a_claim_always(spans: InMemorySpanExporter, broker: LocalBroker) -> None:
    pages = broker.application.broker.page_queries
    review_id = await proposed(broker)
    review = await pages.find(review_id)
    first = await pages.applies(review)
    assert isinstance(first, Applies)
    assert await pages.applies(review) == first
    assert checks(spans) == 1
    claim = await broker("claim_review", review_id=review_id, reviewer_id="codex")
    assert (checks(spans), claim["digest"]) == (2, first.digest)
    broker.clock.pass_time(6)
    await pages.applies(review)
    assert checks(spans) == 3


async def test_a_page_shows_what_the_last_claim_learnt(broker: LocalBroker, repository: Path) -> None:
    pages = broker.application.broker.page_queries
    review_id = await proposed(broker)
    review = await pages.find(review_id)
    assert isinstance(await pages.applies(review), Applies)
    (repository / "hello.txt").write_text("all\nis\nnew\n")
    git(repository, "commit", "-qam", "moved")
    rejected = await broker("claim_review", review_id=review_id, reviewer_id="codex")
    assert rejected["auto_rejected"] is True
    assert isinstance(await pages.applies(review), DoesNotApply)


async def test_one_who_goes_away_leaves_the_answer_to_those_who_stay(
    spans: InMemorySpanExporter, broker: LocalBroker
) -> None:
    review_id = await proposed(broker)
    leaving = asyncio.create_task(broker("claim_review", review_id=review_id, reviewer_id="first"))
    staying = asyncio.create_task(broker("claim_review", review_id=review_id, reviewer_id="second"))
    while not broker.application.broker.claims._applies._running:
        await asyncio.sleep(0)
    leaving.cancel()
    assert (await staying)["claimed_by"] == "second"
    assert checks(spans) == 1


async def test_answers_are_remembered_up_to_a_bound(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applies, "_MOST_REMEMBERED", 2)
    pages = broker.application.broker.page_queries
    for _ in range(3):
        await pages.applies(await pages.find(await proposed(broker)))
    assert len(broker.application.broker.claims._applies._answers) == 2


async def test_a_page_is_told_why_git_cannot_be_asked_and_a_claim_is_refused(
    broker: LocalBroker, repository: Path
) -> None:
    pages = broker.application.broker.page_queries
    review_id = await proposed(broker)
    repository.rename(repository.with_name("elsewhere"))
    answer = await pages.applies(await pages.find(review_id))
    assert "is gone" in str(answer)
    with pytest.raises(ToolError) as error:
        await broker("claim_review", review_id=review_id, reviewer_id="codex")
    assert error.value.code == "unavailable"
    assert (await broker("get_review_status", review_id=review_id))["status"] == "pending"
