"""Which of GSD's plans are active, and which commits wait for their approval."""

import pytest

from gsd_review_broker.domain.gate.decision import Because, Commit, Covered, RepositoryId, ReviewedChange
from gsd_review_broker.domain.gate.judge import ApprovalsAtHand, PlanApproval, judge, plan_approval
from gsd_review_broker.domain.gate.policy import GatePolicy, Mode, stricter
from gsd_review_broker.domain.gate.records import Entry, Step, raw_records
from gsd_review_broker.domain.gate.refusal import plan_refusal_text
from gsd_review_broker.domain.gate.request import Asker, GateRequest, PlanVersion, parse_request, plan_line
from gsd_review_broker.domain.model import Milliseconds, ReviewId
from gsd_review_broker.domain.text import Identity
from gsd_review_broker.gate.question import current_phase, is_of_phase, unfinished_plans
from tests.support.policies import gate_policy

PLAN = b".planning/phases/03-parse/03-02-PLAN.md"
ABSENT = Entry(b"000000", b"0" * 40)
ONE, TWO = (Entry(b"100644", digit * 40) for digit in (b"1", b"2"))
HERE = RepositoryId(root="r" * 40, folder="/here/.git")
ON = gate_policy(plan_first=True)


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("---\ncurrent_phase: 03\nstatus: executing\n---\n\nPhase: 2 of 9\n", "3"),
        ('current_phase: "03.1"\n', "3.1"),
        ("**Current Phase:** 12A\n", "12A"),
        ("## Current Position\n\nPhase: 3 of 5 (Parse)\nPlan: 1 of 2\n", "3"),
        ("Phase: 03 (parse) — EXECUTING\n", "3"),
        ("Phase: 0\n", "0"),
        ("Phase: Not started (defining requirements)\n", None),
        ("", None),
    ],
)
def test_the_current_phase_is_the_one_that_gsd_names(state: str, phase: str | None) -> None:
    assert current_phase(state) == phase


@pytest.mark.parametrize(
    ("folder", "phase", "expected"),
    [
        ("03-parse", "3", True),
        ("SHOP-03-parse", "3", True),
        ("3", "3", True),
        ("03.1-fix", "3", False),
        ("03.1-fix", "3.1", True),
        ("30-later", "3", False),
        ("notes", "3", False),
    ],
)
def test_a_folder_belongs_to_the_phase_whose_number_it_begins_with(folder: str, phase: str, expected: bool) -> None:
    assert is_of_phase(folder, phase) is expected


def test_a_plan_with_a_summary_is_finished() -> None:
    names = ["03-01-PLAN.md", "03-01-SUMMARY.md", "03-02-PLAN.md", "03-CONTEXT.md", "MYPLAN.md", "PLAN.md"]
    assert unfinished_plans(names) == ["03-02-PLAN.md", "PLAN.md"]


def approved(
    review: str, new: Entry, *, old: Entry = ABSENT, by: str = "codex", folder: str = HERE.folder
) -> ReviewedChange:
    return ReviewedChange(
        review_id=ReviewId(review), revision=1, digest="", repository=None, folder=folder,
        records=raw_records({PLAN: Step(old, new)}), reviewer=Identity(by), approved_at=Milliseconds(1),
    )  # fmt: skip


def reviews(*changes: ReviewedChange, policy: GatePolicy = ON, now: tuple[Entry, ...] = (TWO,)) -> tuple[str, ...]:
    return plan_approval(ApprovalsAtHand(changes), PlanVersion(path=PLAN, entries=now), HERE, policy).reviews


def test_a_plan_is_approved_if_a_review_of_this_repository_ends_with_its_content() -> None:
    assert reviews(approved("a", ONE)) == ()
    assert reviews(approved("a", ONE), approved("b", TWO, old=ONE)) == ("b",)
    assert reviews(approved("a", TWO, folder="/elsewhere/.git")) == ()
    assert reviews(approved("a", Entry(b"100755", TWO.object_id))) == ()
    # Lines that end with CR LF may have been stored without CR.
    assert reviews(approved("a", ONE), now=(TWO, ONE)) == ("a",)
    assert reviews(approved("a", TWO), now=()) == ()


def test_a_plan_that_needs_a_person_is_not_approved_by_an_agent() -> None:
    people = stricter({"human_paths": ["*-PLAN.md"], "plan_first": True})
    assert reviews(approved("a", TWO), policy=people) == ()
    assert reviews(approved("a", TWO, by="human:ada"), policy=people) == ("a",)


def commit(name: str, *paths: str) -> Commit:
    return Commit(id=name, steps={path.encode(): Step(ABSENT, ONE) for path in paths})


def held(policy: GatePolicy, *entries: Entry, asker: Asker = Asker.HOOK) -> list[str]:
    """One plan for each entry is asked about; that with the content TWO is approved."""
    commits = (
        commit("code", "a.py"),
        commit("both", "a.py", PLAN.decode()),
        commit("plan", PLAN.decode()),
        commit("state", ".planning/STATE.md"),
        commit("merge", "b.py"),
        commit("overridden", "c.py"),
        commit("unreviewed", "d.py"),
    )
    reviewed = Covered(because=Because.REVIEW, reviews=("r",))
    known = {
        **dict.fromkeys(("code", "both", "plan", "unreviewed"), reviewed),
        "merge": Covered(because=Because.MERGE),
        "overridden": Covered(because=Because.OVERRIDE),
    }
    plans = tuple(PlanVersion(path=PLAN, entries=(entry,)) for entry in entries)
    request = GateRequest(origin=HERE, asker=asker, root=None, branches=(), commits=commits, plans=plans)
    answer = judge(ApprovalsAtHand([approved("a", TWO)]), request, policy, Milliseconds(1), known=known)
    assert answer.missing_plans == ((PLAN.decode(),) if answer.refusals else ())
    assert answer.landing().keys().isdisjoint(refusal.commit.id for refusal in answer.refusals)
    return [refusal.commit.id for refusal in answer.refusals]


def test_code_is_held_back_while_a_plan_is_not_approved() -> None:
    assert held(ON, TWO, ONE) == ["code", "both", "unreviewed"]
    assert held(ON, TWO) == held(ON) == []
    assert held(gate_policy(), ONE) == []
    assert held(ON, ONE, asker=Asker.CHECK) == []
    assert held(gate_policy(mode=Mode.OFF, plan_first=True), ONE) == []
    unapproved = PlanApproval(plan=PlanVersion(path=PLAN, entries=(ONE,)), reviews=())
    assert unapproved.facts() == {"plan": PLAN.decode(), "approved": False, "reviews": []}


def test_either_file_can_turn_it_on_and_neither_can_turn_it_off_for_the_other() -> None:
    assert stricter({}).plan_first is False
    assert stricter({"plan_first": True}, {"plan_first": False}).plan_first is True
    with pytest.raises(ValueError, match=r"gate\.plan_first: 'yes' is neither true nor false"):
        stricter({"plan_first": "yes"})


def test_the_plans_travel_with_the_question() -> None:
    plans = (
        PlanVersion(path=b"a b/01-01-PLAN.md", entries=(ONE, Entry(b"100644", b"3" * 40))),
        PlanVersion(path=b"gone-PLAN.md", entries=()),
    )
    body = b"by=hook\nfolder=/x/.git\n" + b"".join(map(plan_line, plans)) + b"\n"
    assert parse_request(body).plans == plans
    assert plan_line(PlanVersion(path=b"a\nb-PLAN.md", entries=())) == b"plan=000000  a?b-PLAN.md\n"
    assert parse_request(b"by=hook\nfolder=/x/.git\nplan=\n\n").plans == (PlanVersion(path=b"", entries=()),)


def test_the_refusal_names_the_plans_the_commits_and_the_next_command() -> None:
    names = [f"it's-{number:02}-PLAN.md" for number in range(10)]
    text = plan_refusal_text([Commit(id="c" * 40, subject="feat: x")], names, "/here", ON).splitlines()
    assert (
        text[0]
        == "tandem gate: warning (the commit is let through): code waits until its plan is approved (gate.plan_first)."
    )
    assert text[1:3] == ["  not approved as it is: it's-00-PLAN.md", "  not approved as it is: it's-01-PLAN.md"]
    assert text[9:] == [
        "  … and 2 more",
        f"  commit {'c' * 12} feat: x",
        "The plan in /here applies; run the command there, then commit again.",
        """Next: tandem propose --path 'it'"'"'s-00-PLAN.md' -m "WHAT AND WHY" --category plan_review --wait""",
    ]
