"""What to do next, in the reader's words: an agent calls tools, a person types commands or uses a page."""

from enum import StrEnum

from gsd_review_broker.errors import BrokerError, Next, NextStep


class Wording(StrEnum):
    TOOLS = "tools"
    COMMANDS = "commands"
    PAGES = "pages"


# Each step as tools, as commands, and as what the dashboard has.
_STEPS: dict[Next, tuple[str, str, str]] = {
    Next.ANOTHER_REVIEWER: (
        "Another identity has to review it; claim_next gives you what you may judge.",
        "Another identity has to review it; `tandem claim` gives you what you may judge.",
        "Another identity has to review it. The inbox shows the reviews that wait for you.",
    ),
    Next.CLAIM_ANOTHER: (
        "Take another with claim_next, or wait: the claim ends with a verdict, a release or its deadline.",
        "Take another with `tandem claim`, or wait: the claim ends with a verdict, a release or its deadline.",
        "Take the claim over, or wait: it ends with a verdict, a release or its deadline.",
    ),
    Next.CLAIM_ANOTHER_OR_RETRY: (
        "Try again in {seconds} s, or take another with claim_next.",
        "Try again in {seconds} s, or take another with `tandem claim`.",
        "Try again in {seconds} s, or judge another review meanwhile.",
    ),
    Next.CLAIM_AGAIN: (
        "Your claim is over; claim_review again if you still want to judge it.",
        "Your claim is over; `tandem claim ID` claims it again if you still want to judge it.",
        "Your claim is over; judge it again from its page if you still want to.",
    ),
    Next.NAME_THE_CLAIM: (
        "Pass the claim_generation that claim_review gave you.",
        "Claim it with `tandem claim ID`, then give the verdict.",
        "Open the review's page and give the verdict there.",
    ),
    Next.SEND_MESSAGE: (
        "Only the claimant gives the verdict; add_message if you have something to say.",
        "Only the claimant gives the verdict; use `tandem message` if you have something to say.",
        "Only the claimant gives the verdict; write a message if you have something to say.",
    ),
    Next.WRITE_AS_YOURSELF: (
        "A person may take it over; you may write as yourself with sender_id.",
        "`tandem claim ID --take-over` takes it over; `tandem message ID` writes as yourself.",
        "Take it over, or write a message as yourself.",
    ),
    Next.ACT_AS_PROPOSER: (
        "Call again with the proposer_id that created it, or let a person do it.",
        "Use --as with the identity that proposed it, or let a person do it.",
        "Its proposer has to do it, or a person.",
    ),
    Next.CONTINUE_IN_ANOTHER: (
        "Close it and create another with parent_id.",
        "Close it with `tandem close ID` and propose another with --parent-id ID.",
        "Close it; its proposer can continue in another review.",
    ),
    Next.SPLIT: (
        "Split the change into several reviews (parent_id links them).",
        "Split the change into several reviews (--parent-id links them).",
        "Split the change into several reviews.",
    ),
    Next.POSSIBLE_NOW: ("Possible now: {commands}.", "Possible now: {commands}.", "Possible now: {commands}."),
    Next.LIST_REVIEWS: (
        "list_reviews shows the existing ones.",
        "`tandem list` shows the existing ones.",
        "The reviews page shows the existing ones.",
    ),
    Next.LIST_FILES: (
        "affected_files lists what it touches.",
        "`tandem show ID` lists what it touches.",
        "The review's page lists what it touches.",
    ),
    Next.LIST_FINDINGS: (
        "get_discussion lists its findings.",
        "`tandem show ID` lists its findings.",
        "The review's page lists its findings.",
    ),
    Next.LIST_MESSAGES: (
        "get_discussion lists its messages.",
        "`tandem show ID` lists its messages.",
        "The review's page lists its messages.",
    ),
    Next.READ_COUNTER_PATCH: (
        "Read it with get_proposal, then decide again.",
        "Read it with `tandem diff ID --counter`, then decide again.",
        "Read it on the review's page, then decide again.",
    ),
    Next.REPEAT_CURSOR: (
        "Pass next_cursor as it came, with the same arguments as before; or leave it out to begin again.",
        "Give the cursor as it came, with the same options as before; or leave it out to begin again.",
        "Follow the page's own links, or begin again at its first page.",
    ),
    Next.LIST_REVIEWERS: (
        "list_reviewers shows all.",
        "`tandem pool list` shows all.",
        "The pool's page shows all.",
    ),
    Next.LIST_OWN_REVIEWERS: (
        "list_reviewers shows those that it started; it cannot stop others.",
        "`tandem pool list` shows those that it started; it cannot stop others.",
        "The pool's page shows those that it started; it cannot stop others.",
    ),
    Next.LIST_RUNNING_REVIEWERS: (
        "list_reviewers shows the running ones.",
        "`tandem pool list` shows the running ones.",
        "The pool's page shows the running ones.",
    ),
}
# What a review can be asked for, by the tools' names (domain/rules/transitions.py).
_COMMANDS: dict[str, tuple[str, str]] = {
    "claim_review": ("`tandem claim`", "claim it"),
    "add_message": ("`tandem message`", "write a message"),
    "submit_verdict approved": ("`tandem approve`", "approve"),
    "submit_verdict changes_requested": ("`tandem request-changes`", "request changes"),
    "submit_verdict comment": ("`tandem comment`", "comment"),
    "release_claim": ("`tandem release`", "release the claim"),
    "create_review with review_id": ("`tandem propose --review ID`", "send a revision"),
    "accept_counter_patch": ("`tandem accept`", "accept the counter-patch"),
    "reject_counter_patch": ("`tandem reject`", "reject the counter-patch"),
    "resolve_finding": ("`tandem resolve`", "resolve a finding"),
    "close_review": ("`tandem close`", "close it"),
}
_PLACE = {Wording.TOOLS: 0, Wording.COMMANDS: 1, Wording.PAGES: 2}


def wording_of(header: str | None) -> Wording:
    """Choose the wording that a caller asked for. A caller that asks for none is an agent."""
    return Wording(header) if header in set(Wording) else Wording.TOOLS


def hint_of(error: BrokerError, wording: Wording) -> str:
    return error.hint if error.next is None else worded(error.next, wording)


def envelope(error: BrokerError, wording: Wording) -> dict[str, str]:
    return error.as_json(hint_of(error, wording))


def worded(step: NextStep, wording: Wording) -> str:
    commands = ", ".join(_command(name, wording) for name in step.commands)
    return _STEPS[step.kind][_PLACE[wording]].format(seconds=step.seconds, commands=commands)


def _command(name: str, wording: Wording) -> str:
    return name if wording is Wording.TOOLS else _COMMANDS[name][_PLACE[wording] - 1]
