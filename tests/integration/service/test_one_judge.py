"""A rule that is added to the judge holds on every way to an answer: real git, a real database, real receipts."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.gate_questions import commits_log
from gsd_review_broker.cli.main import main
from gsd_review_broker.domain.gate import judge
from gsd_review_broker.domain.model import ReviewId
from gsd_review_broker.gate import database_file, hook, install, remote
from gsd_review_broker.gate.receipts import TicketOffice
from gsd_review_broker.settings import locations
from gsd_review_broker.settings.state_files import Database
from tests.support import asgi
from tests.support.local import LocalBroker, local_broker
from tests.support.processes import git

RANGE = "HEAD~1..HEAD"
FROZEN = "tandem gate: refused: hello.txt is frozen."


def frozen(case: judge.Case) -> judge.Objection | None:
    """The rule that is added."""
    touching = tuple(commit for commit in case.commits if b"hello.txt" in commit.steps)
    return judge.Objection(commits=touching, text=FROZEN) if touching else None


@dataclass(frozen=True)
class Landed:
    """A commit that a review covers, with its receipt in a note."""

    broker: LocalBroker
    root: Path
    review: str

    @property
    def site(self) -> hook.Site:
        return install.hook_site(install.GateSite.of(self.root))

    @property
    def question(self) -> bytes:
        log = commits_log(install.GateSite.of(self.root), [RANGE])
        return self.site.head("hook") + b"branch=refs/heads/main\n\n" + log

    async def post(self, path: str, body: bytes) -> asgi.AsgiAnswer:
        kind = {"content-type": "application/x-tandem-gate", "accept": "application/json"}
        return await asgi.request(self.broker.application.asgi, "POST", path, body=body, headers=kind)


@pytest.fixture
async def landed(repository: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Landed]:
    own = repository / ".planning"
    own.mkdir()
    async with local_broker(own, root=repository) as broker:
        settings = own / "review-broker.json"
        settings.write_text(json.dumps({"gate": {"mode": "block"}}))
        (repository / "hello.txt").write_text("approved\n")
        diff = git(repository, "diff", "--full-index").decode()
        review = (await broker.create(diff=diff))["review_id"]
        claim = await broker("claim_review", review_id=review, reviewer_id="codex-1")
        await broker("submit_verdict", review_id=review, verdict="approved", claim_generation=claim["claim_generation"])
        git(repository, "commit", "-qam", "approved")
        receipt = (await broker.application.broker.receipts.of_review(review))["receipt"]
        git(repository, "notes", "--ref=refs/notes/tandem", "add", "-m", receipt, "HEAD")
        database = Database(path=broker.database)
        install.install(install.GateSite.of(repository), database=database, user_database=database)
        monkeypatch.chdir(repository)
        yield Landed(broker, repository, review)


async def by_the_broker(here: Landed) -> bool:
    return (await here.post("/api/gate/check", here.question)).message["outcome"] == "pass"


async def by_a_broker_on_another_machine(here: Landed) -> bool:
    loop = asyncio.get_running_loop()

    class Line:
        """Leads to the broker in this process."""

        def __init__(self, *_: Any, **__: Any) -> None: ...

        def exchange(self, _: str, path: str, body: bytes, *__: Any, **___: Any) -> tuple[int, dict[str, str], bytes]:
            answer = asyncio.run_coroutine_threadsafe(here.post(path, body), loop).result()
            return answer.status, answer.headers, answer.body

        def close(self) -> None: ...

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(remote, "Connection", Line)
        url = "https://192.0.2.1"
        outcome, _ = await asyncio.to_thread(remote.ask_remote, here.site, url, "/api/gate/check", here.question)
    return outcome == "pass"


async def by_the_database_file(here: Landed) -> bool:
    site = here.site
    del site.known["public_key"]
    outcome, _ = await asyncio.to_thread(database_file.answer_from_file, site, here.question, "no broker")
    return outcome == "pass"


async def by_receipts_without_a_database(here: Landed) -> bool:
    site = here.site
    del site.known["database"], site.known["user_database"]
    outcome, _ = await asyncio.to_thread(database_file.answer_from_file, site, here.question, "no broker")
    return outcome == "pass"


async def tandem(*words: str) -> bool:
    code = await asyncio.to_thread(main, ["gate", "check", RANGE, *words])
    assert code in {Exit.DONE, Exit.REFUSED}
    return code == Exit.DONE


async def by_the_command_line_without_a_broker(here: Landed) -> bool:
    return await tandem("--db", str(here.broker.database))


async def by_receipts_offline(here: Landed) -> bool:
    return await tandem("--offline", "--key", str(locations.public_key_file()))


async def by_a_ticket(here: Landed) -> bool:
    change = await here.broker.store.read(lambda reader: reader.reviewed_change(ReviewId(here.review)))
    base = git(here.root, "rev-parse", "HEAD~1").decode().strip()
    return await asyncio.to_thread(TicketOffice().issue, change, base)


@pytest.mark.parametrize(
    "is_let_through",
    [
        by_the_broker,
        by_a_broker_on_another_machine,
        by_the_database_file,
        by_receipts_without_a_database,
        by_the_command_line_without_a_broker,
        by_receipts_offline,
        by_a_ticket,
    ],
)
async def test_a_rule_that_is_added_holds(
    landed: Landed, monkeypatch: pytest.MonkeyPatch, is_let_through: Callable[[Landed], Awaitable[bool]]
) -> None:
    assert await is_let_through(landed)
    monkeypatch.setattr(judge, "RULES", (*judge.RULES, frozen))
    assert not await is_let_through(landed)


async def test_the_message_is_that_of_the_rule_and_the_commit_lands_without_cover(
    landed: Landed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "RULES", (*judge.RULES, frozen))
    answer = (await landed.post("/api/gate/check", landed.question)).message
    assert (answer["message"], [row["covered"] for row in answer["commits"]]) == (FROZEN, [False])
    await landed.post("/api/gate/landed", landed.question)
    ledger = await landed.broker.application.broker.gate.ledger()
    assert [row["subject"] for row in ledger["without_approval"]] == ["approved"]
