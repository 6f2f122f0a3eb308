"""`tandem gsd`: what GSD's agents call, and what the overlay does in a project with GSD."""

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker.integrations.clients import setup
from tests.support.accounts import put
from tests.support.gsd import gsd_project, gsd_tree
from tests.support.processes import BrokerProcess, git, make_repository
from tests.support.tandem import Tandem, broker_of_module, put_back
from tests.support.waiting import until

FILES = {"hello.txt": "one\n", "other.txt": "one\n"}
SETTINGS = ("review-broker.json", "config.json")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Generator[BrokerProcess]:
    yield from broker_of_module(tmp_path_factory, FILES)


@pytest.fixture
def tandem(process: BrokerProcess) -> Generator[Tandem]:
    put_back(process)
    yield Tandem(process.folder, process.home)
    for name in SETTINGS:
        (process.folder / ".planning" / name).unlink(missing_ok=True)


def settings(tandem: Tandem, **values: Any) -> Path:
    return put(tandem.folder / ".planning" / "review-broker.json", json.dumps(values))


def test_a_project_with_gsd_gets_the_overlay_keeps_it_and_gives_it_back(tandem: Tandem) -> None:
    gsd_tree(tandem.folder)
    config = gsd_project(tandem.folder)
    before = config.read_text()
    assert tandem("status")["integrations"]["gsd"]["state"] == "absent"
    planned = tandem("setup", "--no-gate")
    assert [(one["line"], one["version"], one["runtime"]) for one in planned["gsd"]] == [
        ("get-shit-done-cc", "1.42.3", "claude")
    ]
    assert str(tandem.folder / ".claude" / "skills" / "tandem-review" / "SKILL.md") in [
        file["path"] for file in planned["files"]
    ]
    tandem("setup", "--yes", "--no-gate")
    assert tandem("setup", "--no-gate")["changed"] is False
    states = tandem("status")["integrations"]
    assert (states["gsd"]["state"], states["gate"]["state"], states["codex"]["state"]) == ("ok", "absent", "absent")

    (tandem.folder / ".claude" / "skills" / "tandem-review" / "SKILL.md").unlink()
    assert tandem("status")["integrations"]["gsd"]["state"] == "damaged"
    text = tandem.run("gsd", "status").out
    assert "get-shit-done-cc 1.42.3 for Claude Code" in text
    assert "SKILL.md is missing" in text
    started = tandem.run("gsd", "session-start")
    assert (started.code, started.err) == (0, "")
    assert "plans and commits are reviewed here" in started.out
    assert "put back what was missing" in started.out
    assert tandem("gsd", "session-start")["repaired"] == []
    assert tandem("gsd", "status")["overlay"]["state"] == "ok"

    # GSD's own words for the scopes are understood.
    tandem("uninstall", "gsd", "--scope", "local")
    assert config.read_text() == before
    tandem("uninstall", "--all")
    assert not (tandem.folder / ".claude" / "skills").exists()


def test_without_gsd_its_status_does_not_advise_an_installation_that_would_fail(tandem: Tandem) -> None:
    lines = tandem.run("gsd", "status").out.splitlines()
    assert lines[0].split(maxsplit=1) == ["GSD", "not found here"]
    assert lines[1].split(maxsplit=1) == ["overlay", "not installed: it comes beside GSD"]
    assert tandem.run("install", "gsd").code == 7


def test_the_start_of_a_session_never_fails_and_does_nothing_where_gsd_is_not(tandem: Tandem) -> None:
    assert tandem("gsd", "session-start") == {"project": None, "broker": None, "repaired": [], "problems": []}
    assert tandem.run("gsd", "session-start").out == ""
    gsd_tree(tandem.folder)
    tandem("install", "gsd")
    gsd_project(tandem.folder, "{")
    broken = tandem.run("gsd", "session-start")
    assert (broken.code, "cannot be read" in broken.out) == (0, True)
    gsd_project(tandem.folder)
    settings(tandem, review={"enabled": False})
    assert tandem("gsd", "session-start")["broker"] is None
    tandem("uninstall", "gsd")


def test_the_rules_are_those_of_the_settings(tandem: Tandem) -> None:
    assert tandem("gsd", "rules") == {
        "enabled": True,
        "fail_mode": "closed",
        "required_gates": {"discuss": False, "plan": True, "execute": True, "verify": True},
        "review_granularity": "per_task",
        "execution_mode": "blocking",
        "gate_mode": "off",
        "plan_first": False,
        "problems": [],
    }
    gates = {"plan": True, "execute": True, "verify": False}
    settings(
        tandem, review={"fail_mode": "open", "required_gates": gates}, review_granularity="per_plan",
        execution_mode="optimistic",
    )  # fmt: skip
    text = tandem.run("gsd", "rules").out
    assert "need an approval: plan, execute. That need none: discuss, verify." in text
    assert [line.split(":")[0] for line in text.splitlines()[1:4]] == ["per_plan", "optimistic", "fail_mode open"]
    settings(tandem, review={"enabled": False})
    assert tandem.run("gsd", "rules").out.startswith("review is off: propose nothing")


def test_a_mistake_in_the_settings_never_skips_a_review(tandem: Tandem) -> None:
    settings(tandem, review={"enabled": "perhaps"}, execution_mode="hasty", review_granularity="per_task")
    rules = tandem("gsd", "rules")
    assert (rules["enabled"], rules["execution_mode"]) == (True, "blocking")
    assert [re.search(r": ([a-z_.]+): ", problem)[1] for problem in rules["problems"]] == [  # type: ignore[index]
        "review.enabled", "execution_mode",
    ]  # fmt: skip


def test_a_file_that_came_with_the_repository_cannot_switch_reviews_off(tandem: Tandem) -> None:
    settings(
        tandem, review={"enabled": False, "fail_mode": "open", "required_gates": {"plan": False, "discuss": True}},
        review_granularity="per_plan", execution_mode="optimistic",
    )  # fmt: skip
    git(tandem.folder, "add", "-f", ".planning/review-broker.json")
    rules = tandem("gsd", "rules")
    assert (rules["enabled"], rules["fail_mode"], rules["execution_mode"]) == (True, "closed", "blocking")
    assert rules["required_gates"] == {"discuss": True, "plan": True, "execute": True, "verify": True}
    assert (rules["review_granularity"], len(rules["problems"])) == ("per_plan", 4)


def test_with_a_gate_that_blocks_nobody_goes_on_without_a_verdict(tandem: Tandem) -> None:
    settings(tandem, execution_mode="optimistic")
    tandem("gate", "install", "--mode", "block")
    rules = tandem("gsd", "rules")
    assert (rules["execution_mode"], rules["gate_mode"], rules["plan_first"]) == ("blocking", "block", False)
    assert "the gate is in mode block, so wait" in tandem.run("gsd", "rules").out
    settings(tandem, gate={"mode": "block", "plan_first": True})
    assert "code is not taken while a plan of the current phase" in tandem.run("gsd", "rules").out
    tandem("gate", "uninstall")


def test_every_command_in_the_skill_exists(tandem: Tandem) -> None:
    """Each with the options that the skill names."""
    text = setup.review_skill("claude").text.replace("\\\n", " ")
    calls = re.findall(r"tandem ((?:gsd )?[a-z-]+)([^`|\n]*)", text)
    commands = {name for name, _ in calls if name not in {"gate", "review"}}
    assert {"propose", "wait", "show", "gsd rules", "gsd check"} <= commands
    for name, rest in calls:
        if name in commands:
            shown = tandem.run(*name.split(), "--help")
            assert shown.code == 0, name
            for option in re.findall(r"(?<![\w-])--?[a-z-]+", rest):
                assert re.search(rf"(?<![\w-]){option}(?![\w-])", shown.out), (name, option)


def propose(tandem: Tandem, name: str, text: str) -> str:
    put(tandem.folder / name, text)
    git(tandem.folder, "add", name)
    words = ("propose", "--staged", "-m", f"Change {name}", "--agent-type", "gsd-executor", "--skip-diff-validation")
    return tandem(*words)["review_id"]


def land(tandem: Tandem, name: str, text: str) -> tuple[str, str]:
    """As in optimistic mode: proposed, and committed at once."""
    review = propose(tandem, name, text)
    git(tandem.folder, "commit", "-qm", f"Change {name}", "--trailer", f"Tandem-Review: {review}")
    return review, git(tandem.folder, "rev-parse", "HEAD").decode().strip()


def test_commits_that_landed_before_their_verdict_are_taken_back_with_what_was_built_on_them(tandem: Tandem) -> None:
    first, _ = land(tandem, "other.txt", "two\n")
    second, refused = land(tandem, "hello.txt", "two\n")
    _, built_on = land(tandem, "hello.txt", "three\n")
    land(tandem, "new.txt", "new\n")
    waiting = tandem.run("gsd", "check", "--json")
    assert (waiting.code, len(waiting.json["pending"]), waiting.json["take_back"]) == (8, 4, [])

    tandem("approve", first, "--as", "codex")
    refusal = tandem.run("request-changes", second, "-m", "No.", "--as", "codex")
    assert refusal.code == 0, refusal
    checked = tandem.run("gsd", "check", "--json")
    assert (checked.code, checked.json["take_back"]) == (5, [built_on, refused])
    assert [row["review_id"] for row in checked.json["approved"]] == [first]
    text = tandem.run("gsd", "check").out
    assert f"built on  {built_on[:12]}" in text
    git(tandem.folder, *checked.json["command"].split()[1:])

    # The files are as they were, and what does not depend on it stayed.
    assert (tandem.folder / "hello.txt").read_text() == "one\n"
    assert (tandem.folder / "new.txt").exists()
    after = tandem.run("gsd", "check", "--json")
    assert (after.code, len(after.json["pending"]), after.json["refused"]) == (8, 1, [])


def test_an_approval_of_other_content_does_not_save_a_commit(tandem: Tandem) -> None:
    review, commit = land(tandem, "hello.txt", "wrong\n")
    tandem.run("request-changes", review, "-m", "No.", "--as", "codex")
    git(tandem.folder, "reset", "-q", "--soft", "HEAD~1")
    put(tandem.folder / "hello.txt", "right\n")
    git(tandem.folder, "add", "hello.txt")
    words = ("propose", "--staged", "-m", "Again", "--review", review, "--agent-type", "gsd-executor")
    tandem(*words, "--skip-diff-validation")
    git(tandem.folder, "reset", "-q", "--hard", commit)
    tandem("approve", review, "--as", "codex")
    assert tandem.run("gsd", "check", "--json").json["take_back"] == [commit]


def test_a_trailer_that_names_no_review_is_refused_and_no_trailer_is_nothing_to_check(tandem: Tandem) -> None:
    assert tandem.run("gsd", "check").out == "No commit has the trailer Tandem-Review.\n"
    put(tandem.folder / "hello.txt", "two\n")
    git(tandem.folder, "commit", "-qam", "Change", "--trailer", "Tandem-Review: 0123456789abcdef")
    assert tandem.run("gsd", "check").code == 5


def test_a_plan_that_git_ignores_is_proposed_by_its_path(tandem: Tandem) -> None:
    plan = put(tandem.folder / ".planning" / "phases" / "01-a" / "01-01-PLAN.md", "# Plan\n")
    put(tandem.folder / ".gitignore", ".planning/\n")
    put(tandem.folder / "hello.txt", "not this\n")
    inside = Tandem(plan.parent, tandem.home)
    created = inside(
        "propose", "--path", plan.name, "-m", "Plan", "--agent-type", "gsd-planner", "--category", "plan_review",
    )  # fmt: skip
    assert [file["path"] for file in created["affected_files"]] == [".planning/phases/01-a/01-01-PLAN.md"]
    assert created["priority"] == "critical"
    outside = tandem.run("propose", "--path", "../elsewhere", "-m", "x")
    assert (outside.code, "is outside" in outside.err) == (2, True)
    missing = tandem.run("propose", "--path", "nothing.md", "-m", "x")
    assert missing.code == 2
    plan.unlink()


def approved_plan(tandem: Tandem, plan: Path) -> str:
    words = ("propose", "--path", str(plan), "-m", "Plan", "--agent-type", "gsd-planner", "--category", "plan_review")
    review = tandem(*words)["review_id"]
    tandem("approve", review, "--as", "codex")
    return review


def test_a_plan_is_approved_by_its_content_though_git_never_sees_it(tandem: Tandem) -> None:
    plan = put(tandem.folder / ".planning" / "phases" / "01-a" / "01-02-PLAN.md", "# Plan\n")
    put(tandem.folder / ".gitignore", ".planning/\n")
    before = tandem.run("gate", "check", "--plan", str(plan))
    assert (before.code, before.out.splitlines()[0].endswith("01-02-PLAN.md is not approved as it is.")) == (5, True)
    assert "Next: tandem propose --path .planning/phases/01-a/01-02-PLAN.md" in before.out

    review = approved_plan(tandem, plan)
    inside = Tandem(plan.parent, tandem.home)
    checked = inside("gate", "check", "--plan", plan.name)
    assert (checked["approved"], checked["reviews"]) == (True, [review])
    assert f"is approved as it is (review {review})" in tandem.run("gate", "check", "--plan", str(plan)).out

    # A changed byte or mode is another plan; the old content is still the approved one.
    for change in (lambda: plan.write_text("# Plan \n"), lambda: plan.chmod(0o755)):
        change()
        assert tandem.run("gate", "check", "--plan", str(plan)).code == 5
        plan.write_text("# Plan\n")
        plan.chmod(0o644)
    assert tandem.run("gate", "check", "--plan", str(plan)).code == 0
    # The same content at another path was not approved.
    copy = put(plan.with_name("01-03-PLAN.md"), "# Plan\n")
    assert tandem.run("gate", "check", "--plan", str(copy)).code == 5
    plan.unlink()
    copy.unlink()


def test_a_new_version_of_a_committed_plan_is_approved_as_a_change(tandem: Tandem) -> None:
    plan = put(tandem.folder / ".planning" / "phases" / "01-a" / "01-04-PLAN.md", "# Plan\n")
    git(tandem.folder, "add", "-f", str(plan))
    git(tandem.folder, "commit", "-qm", "A plan that nobody approved")
    assert tandem.run("gate", "check", "--plan", str(plan)).code == 5
    plan.write_text("# Better plan\n")
    review = approved_plan(tandem, plan)
    assert tandem("gate", "check", "--plan", str(plan))["reviews"] == [review]
    git(tandem.folder, "commit", "-qam", "The plan that was approved")
    assert tandem("gate", "check", "--plan", str(plan))["reviews"] == [review]


def test_what_cannot_be_a_plan_is_wrong_usage_or_not_found(tandem: Tandem, tmp_path: Path) -> None:
    # What the gate exempts can be approved all the same.
    notes = put(tandem.folder / ".planning" / "notes.md", "x\n")
    assert tandem.run("gate", "check", "--plan", str(notes)).code == 5
    approved_plan(tandem, notes)
    assert tandem.run("gate", "check", "--plan", str(notes)).code == 0
    notes.unlink()
    assert tandem.run("gate", "check", "--plan", "nothing.md").code == 7
    assert tandem.run("gate", "check", "--plan", str(put(tmp_path / "outside.md", "x"))).code == 7
    assert tandem.run("gate", "check").code == 2
    assert tandem.run("gate", "check", "HEAD~1..HEAD", "--plan", "hello.txt").code == 2


def test_a_status_line_has_a_few_words_and_never_fails(tandem: Tandem, tmp_path: Path) -> None:
    review = propose(tandem, "hello.txt", "two\n")
    tandem.run("request-changes", review, "-m", "No.", "--as", "codex")
    propose(tandem, "other.txt", "two\n")
    shown = tandem.run("gsd", "statusline")
    assert (shown.code, shown.err) == (0, "")
    assert re.fullmatch(r"tandem: \d+ to fix, .*\d+ waiting\n", shown.out)
    elsewhere = Tandem(make_repository(tmp_path / "elsewhere"), tandem.home).run("gsd", "statusline")
    assert (elsewhere.code, elsewhere.out, elsewhere.err) == (0, "tandem: no broker\n", "")


def test_a_phase_stops_at_a_checkpoint_until_its_plans_and_commits_are_approved(tandem: Tandem) -> None:
    gsd_project(tandem.folder)
    put(tandem.folder / ".planning" / "STATE.md", "Phase: 7 of 9\n")
    name = ".planning/phases/07-checkpoint/07-01-PLAN.md"
    plan = put(tandem.folder / name, "# Checkpoint\n")
    stopped = tandem.run("gsd", "checkpoint", "plan")
    assert stopped.code == 5
    assert stopped.out.splitlines() == [
        "tandem: checkpoint plan: not approved.",
        f"  {name} is not approved as it is",
        f'Next: tandem propose --path {name} -m "WHAT AND WHY" --category plan_review --wait',
    ]
    approved_plan(tandem, plan)
    assert tandem("gsd", "checkpoint", "plan")["passed"] is True
    plan.unlink()

    # Commits count since the gate was installed.
    assert tandem.run("gsd", "checkpoint", "execute").code == 0
    tandem("gate", "install", "--mode", "warn")
    put(tandem.folder / "checkpoint.txt", "new\n")
    git(tandem.folder, "add", "checkpoint.txt")
    git(tandem.folder, "commit", "-qm", "Nobody read this")
    for checkpoint in ("execute", "verify"):
        refused = tandem.run("gsd", "checkpoint", checkpoint, "--json")
        assert (refused.code, len(refused.json["problems"])) == (5, 1)
        assert refused.json["next"].startswith("tandem propose --range ")
    refusal = tandem.run("gate", "check", "HEAD~1..HEAD").out.splitlines()
    assert (refusal[0][:20], refusal[-1].startswith("Next: ")) == ("tandem gate: 1 commi", True)
    settings(tandem, review={"required_gates": {"execute": False}})
    assert "No approval is needed" in tandem.run("gsd", "checkpoint", "execute").out
    tandem("gate", "uninstall")


def test_in_optimistic_mode_a_wave_may_end_with_pending_reviews_and_a_verification_may_not_begin(
    tandem: Tandem,
) -> None:
    settings(tandem, execution_mode="optimistic")
    review, _ = land(tandem, "hello.txt", "optimistic\n")
    assert tandem.run("gsd", "checkpoint", "execute").code == 0
    waiting = tandem.run("gsd", "checkpoint", "verify", "--json")
    assert (waiting.code, waiting.json["next"]) == (5, f"tandem wait {review}")
    tandem.run("request-changes", review, "-m", "No.", "--as", "codex")
    refused = tandem.run("gsd", "checkpoint", "execute", "--json")
    assert (refused.code, refused.json["next"].split()[:2]) == (5, ["git", "revert"])


def test_without_a_broker_a_checkpoint_stops_the_phase_unless_it_fails_open(tandem: Tandem, tmp_path: Path) -> None:
    elsewhere = Tandem(make_repository(tmp_path / "elsewhere"), tandem.home)
    plan = put(elsewhere.folder / ".planning" / "phases" / "01-a" / "01-01-PLAN.md", "# Plan\n")
    assert plan.is_file()
    assert elsewhere.run("gsd", "checkpoint", "plan").code == 3
    settings(elsewhere, review={"fail_mode": "open"})
    passed = elsewhere.run("gsd", "checkpoint", "plan")
    assert (passed.code, "Not checked, since fail_mode is open" in passed.out) == (0, True)


def asked_by_gsd(process: BrokerProcess) -> str | None:
    rows = process.client()("list_reviews", status="pending", category="plan_review")["reviews"]
    return next((row["id"] for row in rows if row["agent_type"] == "gsd-review"), None)


@pytest.mark.parametrize("prompt", ["# Review this\n\nPlan 01-01.\n", "# Long\n" + "x" * 100 + "\n" + "y\n" * 40_000])
def test_a_prompt_of_gsds_review_is_answered_by_a_reviewer(tandem: Tandem, process: BrokerProcess, prompt: str) -> None:
    call = process.client()
    with tandem.piped("gsd", "review", stdin=prompt.encode()) as running:
        claim = call("claim_review", review_id=until(lambda: asked_by_gsd(process)), reviewer_id="codex-9")
        shown = call("get_proposal", review_id=claim["review_id"])
        content = shown["description"] or shown["diff"]
        finding = {"path": "a.py", "line_start": 3, "severity": "high", "title": "Late", "body": "No test."}
        call(
            "submit_verdict", review_id=claim["review_id"], verdict="changes_requested", reason="Not yet.",
            claim_generation=claim["claim_generation"], findings=[finding],
        )  # fmt: skip
        out, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert content.splitlines()[-1].lstrip("+") in prompt
    assert out.decode().splitlines()[::2] == [
        f"**Verdict:** changes requested, by codex-9 (review {claim['review_id']})",
        "Not yet.",
        "- **HIGH** `a.py:3` Late: No test.",
    ]
    assert call("get_review_status", review_id=claim["review_id"])["status"] == "closed"


def test_a_prompt_that_nobody_reviews_is_withdrawn(tandem: Tandem, process: BrokerProcess) -> None:
    nobody = tandem.run("gsd", "review", "--timeout", "0", stdin=b"Review this.\n")
    assert (nobody.code, "no reviewer answered within 0 s" in nobody.err) == (3, True)
    assert asked_by_gsd(process) is None
    assert tandem.run("gsd", "review", stdin=b" \n").code == 2
