"""The reviewer: takes work, finds fault, offers a better patch, approves."""

import sys

from gsd_review_broker.cli.demo import script
from gsd_review_broker.cli.demo.acting import WAIT_SECONDS, Actor, short
from gsd_review_broker.client.connection import Json


def main() -> int:
    actor = Actor.from_environment("reviewer")
    _find_fault(actor)
    _offer_better(actor)
    _approve(actor)
    return 0


def _claim(actor: Actor) -> Json:
    while True:
        claim = actor.call("claim_next", reviewer_id=script.REVIEWER, wait=True, wait_seconds=WAIT_SECONDS)
        if claim["claimed"]:
            actor.say(
                f"claims revision {claim['revision']}; git says that it applies",
                details=[f"digest {short(claim['digest'])}, claim generation {claim['claim_generation']}"],
            )
            return claim


def _judge(actor: Actor, claim: Json, verdict: str, reason: str, **more: object) -> None:
    actor.call(
        "submit_verdict",
        review_id=claim["review_id"],
        verdict=verdict,
        reason=reason,
        claim_generation=claim["claim_generation"],
        **more,
    )


def _find_fault(actor: Actor) -> None:
    claim = _claim(actor)
    actor.call("get_proposal", review_id=claim["review_id"], caller_id=script.REVIEWER)
    lines = [f"{one['severity']:<8}{one['path']}:{one['line_start']}  {one['title']}" for one in script.FINDINGS]
    actor.say(f'reads the diff and requests changes: "{script.FIRST_VERDICT}"', details=lines)
    _judge(actor, claim, "changes_requested", script.FIRST_VERDICT, findings=script.FINDINGS)


def _offer_better(actor: Actor) -> None:
    claim = _claim(actor)
    since = actor.call("get_proposal", review_id=claim["review_id"], since_revision=1, caller_id=script.REVIEWER)
    lines = len(since["diff"].splitlines())
    actor.say(f"reads only what changed since revision 1 ({lines} lines)")
    actor.say(f'offers a counter-patch: "{script.COUNTER_VERDICT}"')
    patch = actor.diff_to(script.FILE, script.COUNTER)
    _judge(actor, claim, "changes_requested", script.COUNTER_VERDICT, counter_patch=patch)


def _approve(actor: Actor) -> None:
    claim = _claim(actor)
    actor.call("get_proposal", review_id=claim["review_id"], caller_id=script.REVIEWER)
    actor.say(f'approves exactly this content: "{script.LAST_VERDICT}"', details=[f"digest {short(claim['digest'])}"])
    _judge(actor, claim, "approved", script.LAST_VERDICT)


if __name__ == "__main__":
    sys.exit(main())
