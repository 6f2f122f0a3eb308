"""The gate's answers and its ledger, with the broker in this process, real git and a real database."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker.cli.gate_questions import commits_log
from gsd_review_broker.domain.caller import Caller
from gsd_review_broker.domain.gate import judge
from gsd_review_broker.domain.gate.receipts import OverrideReceipt, parse_receipt
from gsd_review_broker.domain.text import Identity
from gsd_review_broker.domain.words import CallerKind
from gsd_review_broker.gate import hook, install
from gsd_review_broker.gate.receipts import parse_public_key
from gsd_review_broker.settings import locations
from tests.support import asgi
from tests.support.local import LocalBroker, MovableClock, local_broker
from tests.support.processes import git

LONG = "".join(f"line {number}\n" for number in range(60))


class Inside:
    def __init__(self, broker: LocalBroker, root: Path) -> None:
        self.broker, self.root = broker, root

    def policy(self, **gate: Any) -> None:
        (self.root / ".planning").mkdir(exist_ok=True)
        (self.root / ".planning" / "review-broker.json").write_text(json.dumps({"gate": {"mode": "block", **gate}}))

    def commit(self, **contents: str) -> str:
        """No hook runs: the questions are asked by hand."""
        for name, content in contents.items():
            (self.root / name.replace("_", ".")).write_text(content)
        git(self.root, "add", "-A", "--", ":!.planning")
        git(self.root, "commit", "-qm", "x")
        return git(self.root, "rev-parse", "HEAD").decode().strip()

    def diff(self, **contents: str) -> str:
        for name, content in contents.items():
            (self.root / name.replace("_", ".")).write_text(content)
        git(self.root, "add", "-A", "--", ":!.planning")
        diff = git(self.root, "diff", "--cached", "--full-index").decode()
        git(self.root, "reset", "-q", "--hard")
        return diff

    async def approve(self, by: str = "codex-1", **contents: str) -> str:
        created = await self.broker.create(diff=self.diff(**contents))
        review = created["review_id"]
        claim = await self.broker("claim_review", review_id=review, reviewer_id=by)
        generation = claim["claim_generation"]
        await self.broker("submit_verdict", review_id=review, verdict="approved", claim_generation=generation)
        self.broker.clock.pass_time(1)
        return review

    async def ask(self, asker: str, path: str = "check", revisions: str = "HEAD~1..HEAD", at: int | None = None) -> Any:
        site = install.GateSite.of(self.root)
        log = commits_log(site, [revisions])
        here = install.hook_site(site)
        head = here.head(asker) + (b"" if at is None else b"at=%d\n" % at)
        body = head + b"branch=refs/heads/main\n" + hook.clean_merges(log) + b"\n" + log
        return await self.post(path, body, "application/x-tandem-gate")

    async def post(self, path: str, body: bytes, kind: str = "application/json", **headers: str) -> Any:
        answer = await asgi.request(
            self.broker.application.asgi,
            "POST",
            f"/api/gate/{path}",
            body=body,
            headers={"content-type": kind, **headers},
        )
        return answer.message

    async def ledger(self) -> Any:
        return await self.broker.application.broker.gate.ledger()

    async def events(self, kind: str) -> list[dict[str, Any]]:
        events = (await self.broker("get_audit_log", limit=500))["events"]
        return [event["metadata"] for event in events if event["event_type"] == kind]


@pytest.fixture
def here(broker: LocalBroker, repository: Path) -> Generator[Inside]:
    inside = Inside(broker, repository)
    inside.policy()
    inside.commit(long_txt=LONG)
    return inside


async def _carried(here: Inside, by: str = "codex-1") -> str:
    review = await here.approve(by, long_txt=LONG.replace("line 50\n", "mine\n"))
    first = LONG.replace("line 5\n", "another\n")
    here.commit(long_txt=first)
    here.commit(long_txt=first.replace("line 50\n", "mine\n"))
    return review


async def test_a_carry_over_is_in_the_audit_and_on_the_reviews_timeline(here: Inside) -> None:
    review = await _carried(here)
    [row] = (await here.ask("check"))["commits"]
    assert (row["because"], row["reviews"]) == ("carried", [review])
    assert await here.ask("hook", "landed") == {"recorded": 1}
    [event] = (await here.broker("get_review_timeline", review_id=review))["events"][-1:]
    assert (event["event_type"], event["metadata"]["because"]) == ("commit_landed", "carried")
    assert "carried over" in event["metadata"]["note"]
    assert "carried over" in await here.broker.page(f"/r/{review}")


@pytest.mark.parametrize(("by", "covered"), [("codex-1", False), ("human:ada", True)])
async def test_a_carry_over_into_a_persons_path_needs_a_persons_approval(here: Inside, by: str, covered: bool) -> None:
    here.policy(human_paths=["long.txt"])
    await _carried(here, by)
    [row] = (await here.ask("check"))["commits"]
    assert row["covered"] is covered


async def test_the_newest_approvals_come_first_and_a_refusal_says_if_older_ones_were_left_out(
    here: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "_MOST_IN_ONE_PLACE", 3)
    reviews = [await here.approve(hello_txt=f"{number}\n") for number in range(4)]
    newest = await here.broker.store.read(lambda reader: reader.approvals_on_path(b"hello.txt", 3))
    assert [change.review_id for change in newest] == reviews[:0:-1]
    here.commit(hello_txt="0\n")
    answer = await here.ask("hook")
    assert (answer["outcome"], "Only the newest approvals" in answer["message"]) == ("refuse", True)
    monkeypatch.undo()
    assert (await here.ask("hook"))["outcome"] == "pass"


async def test_what_landed_is_listed_once_with_what_covers_it(here: Inside) -> None:
    review = await here.approve(hello_txt="approved\n")
    waiting = await here.approve(hello_txt="never\n")
    here.commit(hello_txt="approved\n")
    assert await here.ask("hook", "landed") == {"recorded": 1}
    assert await here.ask("status", "landed") == {"recorded": 0}
    here.broker.clock.pass_time(1)
    around = here.commit(other_txt="around\n")
    assert await here.ask("status", "landed") == {"recorded": 1}
    ledger = await here.broker.application.broker.gate.ledger()
    assert [row["commit"] for row in ledger["without_approval"]] == [around]
    assert [row["review_id"] for row in ledger["never_landed"]] == [waiting]
    assert [row["reviews"] for row in ledger["landed"]] == [[], [review]]
    page = await here.broker.page("/gate")
    assert page.index("Landed without approval") < page.index(around[:12]) < page.index("Approved but never landed")
    assert page.index("Approved but never landed") < page.index(f"/r/{waiting}") < page.index("Overrides")


async def _override(here: Inside, **fields: Any) -> Any:
    known = {"folder": str(here.root / ".git"), "root": str(here.root), "reason": "the site is down"}
    return await here.post("override", json.dumps(known | fields).encode())


async def test_an_override_is_of_whom_the_token_names_whatever_the_call_says(
    here: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    eve = Caller(kind=CallerKind.HUMAN, identity=Identity("human:eve"), proven=True)

    async def caller(_self: object, _bearer: str | None) -> Caller:
        return eve

    monkeypatch.setattr(type(here.broker.application.broker.identification), "caller", caller)
    assert (await _override(here, person="human:ada"))["error"]["code"] == "forbidden"
    assert (await _override(here))["person"] == "human:eve"
    assert [event["reason"] for event in await here.events("gate_overridden")] == ["the site is down"]


async def test_without_a_token_a_person_has_to_be_named_and_not_one_of_the_pool(here: Inside) -> None:
    access = here.broker.application.broker.gatekeeper._access
    token = access.admit(Identity("human:pool"))
    assert (await _override(here))["error"]["code"] == "invalid_argument"
    assert (await _override(here, person="codex"))["error"]["code"] == "forbidden"
    assert (await _override(here, person="human:pool"))["error"]["code"] == "forbidden"
    assert (await _override(here, person="human:ada", minutes=True))["error"]["code"] == "invalid_argument"
    assert (await _override(here, person="human:ada", minutes=0))["error"]["code"] == "invalid_argument"
    assert (await _override(here, person="human:ada", reason=" "))["error"]["code"] == "invalid_argument"
    assert (await _override(here, person="human:ada"))["person"] == "human:ada"
    here.policy(override="nobody")
    assert (await _override(here, person="human:ada"))["error"]["code"] == "forbidden"
    # A reviewer of the pool asks the gate, and records nothing.
    headers = {"authorization": f"Bearer {token}"}
    kind = "application/x-tandem-gate"
    assert (await here.post("landed", b"", kind, **headers))["error"]["code"] == "forbidden"
    assert (await here.post("check", b"", kind, **headers))["error"]["code"] == "invalid_argument"
    assert (await here.post("check", b""))["error"]["code"] == "invalid_argument"


async def test_an_override_covers_what_lands_while_it_is_valid_and_nothing_later(here: Inside) -> None:
    await _override(here, person="human:ada", minutes=1)
    first = here.commit(hello_txt="first\n")
    assert (await here.ask("hook"))["commits"][0]["because"] == "override"
    await here.ask("hook", "landed")
    here.broker.clock.pass_time(61)
    here.commit(hello_txt="second\n")
    assert (await here.ask("hook"))["outcome"] == "refuse"
    rows = (await here.ask("status", revisions="HEAD~2..HEAD"))["commits"]
    assert [(row["commit"] == first, row.get("because")) for row in rows] == [(True, "override"), (False, None)]
    assert (await here.events("gate_refused"))[-1]["files"] == ["hello.txt"]


@pytest.mark.parametrize(("seconds", "because"), [(30, "override"), (-1, None), (61, None)])
async def test_what_landed_under_an_override_while_no_broker_was_running_is_recorded_as_such(
    here: Inside, tmp_path: Path, seconds: int, because: str | None
) -> None:
    """Only the time at which the hook asked counts: the override is over when a broker runs again."""
    began = here.broker.clock.now()
    await _override(here, person="human:ada", minutes=1)
    commit = here.commit(hello_txt="while it was down\n")
    later = MovableClock(began + 3_600_000)
    await here.broker.store.close()
    async with local_broker(tmp_path, root=here.root, clock=later, db=str(here.broker.database)) as broker:
        again = Inside(broker, here.root)
        await again.ask("hook", "landed", at=began + seconds * 1000)
        assert (await again.ask("status"))["commits"][0].get("because") == because
        assert [(row["commit"], row["because"]) for row in (await again.ledger())["landed"]] == [(commit, because)]
    here.broker.store.open()


async def test_a_time_since_the_broker_began_does_not_bring_an_override_back(here: Inside) -> None:
    await _override(here, person="human:ada", minutes=1)
    valid = here.broker.clock.now()
    here.broker.clock.pass_time(61)
    here.commit(hello_txt="later\n")
    await here.ask("hook", "landed", at=valid + 1)
    assert (await here.ask("status"))["commits"][0].get("because") is None


async def test_a_receipt_of_an_override_names_the_commit_the_person_and_the_reason(here: Inside) -> None:
    root = git(here.root, "rev-list", "--max-parents=0", "HEAD").decode().strip()
    await _override(here, person="human:ada", commit=root)
    commit = here.commit(hello_txt="let through\n")
    await here.ask("hook", "landed")
    place = {"folder": str(here.root / ".git")}
    answer = await here.post("receipts/override", json.dumps(place | {"commit": commit}).encode())
    key = parse_public_key(locations.public_key_file().read_text())
    noted = parse_receipt(answer["receipt"], key.id)
    assert noted.is_signed_by(key.has_signed)
    assert noted.receipt == OverrideReceipt(
        repository=root, commit=commit, digest=json.loads(answer["receipt"])["digest"], person="human:ada",
        reason="the site is down",
    )  # fmt: skip
    altered = json.dumps(json.loads(answer["receipt"]) | {"commit": root})
    assert not parse_receipt(altered, key.id).is_signed_by(key.has_signed)
    answer = await here.post("receipts/override", json.dumps(place | {"commit": root}).encode())
    assert answer["error"]["code"] == "not_found"


async def test_an_override_without_a_root_commit_cannot_be_signed(here: Inside) -> None:
    await _override(here, person="human:ada")
    commit = here.commit(hello_txt="let through\n")
    await here.ask("hook", "landed")
    folder = str(here.root / ".git")
    body = json.dumps({"folder": folder, "commit": commit}).encode()
    assert (await here.post("receipts/override", body))["error"]["code"] == "unavailable"


async def test_mode_off_lets_everything_pass_and_mode_warn_warns(here: Inside) -> None:
    here.commit(hello_txt="x\n")
    here.policy(mode="off")
    assert (await here.ask("hook"))["outcome"] == "pass"
    assert (await here.ask("check"))["outcome"] == "refuse"
    here.policy(mode="warn")
    answer = await here.ask("hook")
    assert (answer["outcome"], "warning (the commit is let through)" in answer["message"]) == ("warn", True)
    # `gate check` lets nothing through, whatever the mode.
    answer = await here.ask("check")
    assert answer["message"].startswith("tandem gate: 1 commit without an approved review.")


async def test_another_repositorys_question_is_refused(here: Inside, tmp_path: Path) -> None:
    body = hook.Site("/elsewhere/.git", {"root": "/elsewhere"}, []).head("hook") + b"\n"
    answer = await here.post("check", body, "application/x-tandem-gate")
    assert (answer["error"]["code"], "this broker serves" in answer["error"]["message"]) == ("conflict", True)
