"""The gate's answers and records, asked of the broker in this process. The hook itself is in tests/acceptance/gate."""

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from gsd_review_broker.domain.gate.decision import Because, RepositoryId
from gsd_review_broker.domain.gate.policy import Mode
from gsd_review_broker.domain.gate.request import Asker, GateRequest, parse_log
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.gate.hook import LOG
from gsd_review_broker.service.commands.gate import Gate
from tests.support.local import LocalBroker, local_broker
from tests.support.processes import git


class Gatehouse:
    """A broker, its repository, and questions about the newest commit."""

    def __init__(self, broker: LocalBroker, repository: Path) -> None:
        self.broker = broker
        self.repository = repository

    @property
    def gate(self) -> Gate:
        return self.broker.application.broker.gate

    @property
    def origin(self) -> RepositoryId:
        root = git(self.repository, "rev-list", "--max-parents=0", "HEAD").decode().strip()
        return RepositoryId(root=root, folder=str(self.repository / ".git"))

    async def approve(self, name: str, content: str) -> str:
        """Stages the change and has it approved."""
        (self.repository / name).write_text(content)
        git(self.repository, "add", "-A")
        diff = git(self.repository, "diff", "--cached", "--full-index").decode()
        review_id = (await self.broker.create(diff=diff))["review_id"]
        claim = await self.broker("claim_review", review_id=review_id, reviewer_id="codex-1")
        await self.broker(
            "submit_verdict", review_id=review_id, reviewer_id="codex-1", verdict="approved",
            claim_generation=claim["claim_generation"],
        )  # fmt: skip
        return review_id

    def commit(self, subject: str) -> GateRequest:
        git(self.repository, "commit", "-q", "-m", subject)
        return GateRequest(
            origin=self.origin,
            asker=Asker.HOOK,
            root=str(self.repository),
            branches=("refs/heads/main",),
            commits=parse_log(git(self.repository, *LOG, "-1")),
        )


@pytest.fixture
async def house(tmp_path: Path, repository: Path) -> AsyncGenerator[Gatehouse]:
    async with local_broker(tmp_path, root=repository) as broker:
        yield Gatehouse(broker, repository)


async def test_what_landed_is_linked_to_its_review_once(house: Gatehouse) -> None:
    review_id = await house.approve("hello.txt", "one\nTWO\nthree\n")
    waiting = await house.gate.ledger()
    assert [row["review_id"] for row in waiting["never_landed"]] == [review_id]

    request = house.commit("Shout")
    answer = await house.gate.check(request)
    first, second = await house.gate.landed(request), await house.gate.landed(request)

    assert (answer.outcome, first, second) == ("pass", {"recorded": 1}, {"recorded": 0})
    ledger = await house.gate.ledger()
    assert (ledger["never_landed"], ledger["without_approval"]) == ([], [])
    assert [(row["subject"], row["because"], row["reviews"]) for row in ledger["landed"]] == [
        ("Shout", Because.REVIEW.value, [review_id])
    ]
    timeline = (await house.broker("get_review_timeline", review_id=review_id))["events"]
    assert timeline[-1]["metadata"]["commit"] == request.commits[0].id


async def test_a_commit_that_nobody_approved_names_the_nearest_review(house: Gatehouse) -> None:
    review_id = await house.approve("hello.txt", "one\nTWO\nthree\n")
    (house.repository / "hello.txt").write_text("one\nTWO!\nthree\n")
    git(house.repository, "add", "-A")
    request = house.commit("Shout louder")

    answer = await house.gate.check(request)
    await house.gate.landed(request)

    [row] = answer.as_json(request.commits)["commits"]
    assert (row["covered"], row["files"], row["nearest"]["review_id"]) == (False, ["hello.txt"], review_id)
    ledger = await house.gate.ledger()
    assert [(row["subject"], row["because"]) for row in ledger["without_approval"]] == [("Shout louder", None)]
    assert [row["review_id"] for row in ledger["never_landed"]] == [review_id]


async def test_the_gate_says_what_the_approval_policy_still_asks_for(tmp_path: Path, repository: Path) -> None:
    policy = {"required": 2, "human_paths": ["hello.*"]}
    async with local_broker(tmp_path, root=repository, approvals=policy) as broker:
        house = Gatehouse(broker, repository)
        review_id = await house.approve("hello.txt", "one\nTWO\nthree\n")
        request = house.commit("Shout")

        answer = await house.gate.check(request)

        lacking = f"review {review_id} is pending and needs 1 more approval and a person's approval, for hello.txt"
        assert lacking in answer.text


async def test_an_approval_carries_over_another_change_in_the_same_file(house: Gatehouse) -> None:
    lines = [f"line {number}\n" for number in range(40)]
    (house.repository / "long.txt").write_text("".join(lines))
    git(house.repository, "add", "-A")
    git(house.repository, "commit", "-q", "-m", "base")
    review_id = await house.approve("long.txt", "".join([*lines[:-1], "the last line\n"]))
    (house.repository / "long.txt").write_text("".join(["the first line\n", *lines[1:]]))
    git(house.repository, "commit", "-q", "-a", "-m", "another change in the same file")
    (house.repository / "long.txt").write_text("".join(["the first line\n", *lines[1:-1], "the last line\n"]))
    git(house.repository, "add", "-A")

    answer = await house.gate.check(house.commit("the approved change"))

    [covered] = answer.covered.values()
    assert (covered.because, covered.reviews) == (Because.CARRIED, (review_id,))


async def test_an_override_of_this_repository_lets_a_commit_in_until_it_expires(house: Gatehouse) -> None:
    await house.gate.override(house.origin, str(house.repository), "human:ann", "the build is on fire", 10)
    (house.repository / "hello.txt").write_text("quick fix\n")
    git(house.repository, "add", "-A")
    request = house.commit("Quick fix")

    during = await house.gate.check(request)
    await house.gate.landed(request)
    house.broker.clock.pass_time(601)
    elsewhere = replace(request, origin=RepositoryId(root="0" * 40, folder="elsewhere"))

    [covered] = during.covered.values()
    assert covered.because is Because.OVERRIDE
    assert (await house.gate.check(request)).refusals
    assert (await house.gate.check(elsewhere)).refusals
    # A check by a person still knows that the commit was let in by somebody.
    assert (await house.gate.check(replace(request, asker=Asker.CHECK))).covered
    ledger = await house.gate.ledger()
    assert [(row["person"], row["reason"]) for row in ledger["overrides"]] == [("human:ann", "the build is on fire")]
    assert [row["because"] for row in ledger["without_approval"]] == [Because.OVERRIDE.value]


def write_policy(repository: Path, **values: object) -> None:
    (repository / ".planning").mkdir(exist_ok=True)
    (repository / ".planning/review-broker.json").write_text(json.dumps({"gate": values}))
    (repository / ".git/info/exclude").write_text("/.planning/\n")


def from_elsewhere(request: GateRequest, **changes: object) -> GateRequest:
    """As a clone on another machine asks, with that machine's paths."""
    origin = RepositoryId(root=request.origin.root, folder="/home/ada/shop/.git")
    return replace(request, origin=origin, root="/home/ada/shop", is_elsewhere=True, **changes)


def unapproved(house: Gatehouse) -> GateRequest:
    (house.repository / "hello.txt").write_text("quick fix\n")
    git(house.repository, "add", "-A")
    return house.commit("Quick fix")


async def test_a_clone_on_another_machine_is_known_by_its_root_commit_and_judged_by_the_policy_here(
    house: Gatehouse,
) -> None:
    write_policy(house.repository, mode="block")
    review_id = await house.approve("hello.txt", "one\nTWO\nthree\n")
    request = from_elsewhere(house.commit("Shout"))
    [covered] = (await house.gate.check(request)).covered.values()
    assert covered.reviews == (review_id,)
    assert await house.gate.landed(request) == {"recorded": 1}
    assert (await house.gate.check(from_elsewhere(unapproved(house)))).outcome == "refuse"
    for root in ("0" * 40, None):
        with pytest.raises(BrokerError, match="this broker serves") as refused:
            await house.gate.check(
                replace(request, origin=RepositoryId(root=root, folder=str(house.repository / ".git")))
            )
        assert refused.value.code is Code.CONFLICT


async def test_the_stricter_of_the_callers_mode_and_the_brokers_counts(house: Gatehouse) -> None:
    request = from_elsewhere(unapproved(house))
    outcomes: list[tuple[str, str]] = []
    for mode in ("off", "warn", "block"):
        write_policy(house.repository, mode=mode)
        outcomes += [
            ((await house.gate.check(replace(request, mode=own))).outcome, f"{mode} here, {own} there") for own in Mode
        ]
    assert [outcome for outcome, _ in outcomes] == [
        *("pass", "warn", "refuse"), *("warn", "warn", "refuse"), *("refuse", "refuse", "refuse"),
    ], outcomes  # fmt: skip


async def test_an_override_is_allowed_or_not_by_the_policy_of_the_served_repository(
    house: Gatehouse, tmp_path: Path
) -> None:
    """Whatever folder the call names: one without a policy would allow it."""
    write_policy(house.repository, override="nobody")
    for root, is_elsewhere, code in (
        (str(house.repository), False, Code.FORBIDDEN),
        (str(tmp_path), False, Code.CONFLICT),
        (None, False, Code.CONFLICT),
        (str(tmp_path), True, Code.FORBIDDEN),
    ):
        with pytest.raises(BrokerError) as refused:
            await house.gate.override(house.origin, root, "human:ann", "in a hurry", 10, is_elsewhere=is_elsewhere)
        assert refused.value.code is code, (root, is_elsewhere)


async def test_a_users_broker_reads_no_policy_outside_its_allowed_roots(tmp_path: Path, repository: Path) -> None:
    """Neither the file nor git in that folder: the answer does not tell whether it exists."""
    write_policy(repository, mode="off")
    async with local_broker(tmp_path) as broker:
        house = Gatehouse(broker, repository)
        request = unapproved(house)
        answers: set[str] = set()
        for root in (str(repository), str(tmp_path / "nothing")):
            for question in (house.gate.check, house.gate.landed):
                with pytest.raises(BrokerError) as refused:
                    await question(replace(request, root=root))
                assert refused.value.code is Code.FORBIDDEN
                answers.add(refused.value.message.replace(root, "ROOT"))
        assert len(answers) == 1
        # From another machine it is the broker's own policy that counts.
        assert (await house.gate.check(from_elsewhere(request))).outcome == "warn"
    async with local_broker(tmp_path, allowed_roots=[str(repository)]) as broker:
        assert (await Gatehouse(broker, repository).gate.check(request)).outcome == "pass"
