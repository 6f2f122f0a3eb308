"""What a refusal says: the commit, the files without approval, the nearest review, and the next command."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from gsd_review_broker.domain.gate.decision import Commit, without_exempt
from gsd_review_broker.domain.gate.policy import GatePolicy, Mode

_MOST_COMMITS = 5
_MOST_FILES = 8
_SHORT_ID = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Nearest:
    """The review that comes closest to a commit."""

    review_id: str
    # pending, stale, changes_requested, needs a person, or changed after its approval.
    standing: str
    # Where the commit differs from what was approved.
    differs_in: tuple[str, ...] = ()
    # What the approval policy still asks for.
    missing: tuple[str, ...] = ()

    @property
    def next_command(self) -> str | None:
        """Return the command; None if the change has to be proposed."""
        match self.standing:
            case "pending" | "claimed" | "in_review":
                return f"tandem wait {self.review_id}"
            case "changes_requested":
                return f"tandem show {self.review_id}"
            case "needs_person":
                return f"tandem open {self.review_id}"
            case _:
                return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    commit: Commit
    files: tuple[str, ...]
    nearest: Nearest | None
    # It is in a branch already, so nothing is staged.
    has_landed: bool = False

    @property
    def next_command(self) -> str:
        known = self.nearest.next_command if self.nearest else None
        if known is not None:
            return known
        short = self.commit.id[:_SHORT_ID]
        what = f"--range {short}~1..{short} --skip-diff-validation" if self.has_landed else "--staged"
        return f'tandem propose {what} -m "WHAT AND WHY" --wait'


def shown_path(path: bytes) -> str:
    """Write a name so that a terminal can show it safely."""
    name = path.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def files_of(commit: Commit, policy: GatePolicy) -> tuple[str, ...]:
    return tuple(shown_path(path) for path in sorted(without_exempt(commit.steps, policy)))


def refusal_text(refusals: Sequence[Refusal], policy: GatePolicy, *, note: str = "") -> str:
    """Made for agents and people alike; the last line is the command to run."""
    verb = "refused: " if policy.mode is Mode.BLOCK else "warning (the commit is let through): "
    if policy.mode is not Mode.BLOCK and any(refusal.has_landed for refusal in refusals):
        # Nothing is about to land, so nothing is let through.
        verb = ""
    count = len(refusals)
    lines = [f"tandem gate: {verb}{count} commit{'s' if count > 1 else ''} without an approved review."]
    for refusal in refusals[:_MOST_COMMITS]:
        lines += _lines(refusal)
    if count > _MOST_COMMITS:
        lines.append(f"  … and {count - _MOST_COMMITS} more")
    if policy.problem:
        lines.append(f"The gate's configuration cannot be read, so it blocks: {policy.problem}")
    if note:
        lines.append(note)
    lines.append(f"Next: {refusals[0].next_command}")
    return "\n".join(lines)


def plan_refusal_text(commits: Sequence[Commit], plans: Sequence[str], root: str | None, policy: GatePolicy) -> str:
    """Say why code is held back; the plan's own approval comes first."""
    verb = "refused" if policy.mode is Mode.BLOCK else "warning (the commit is let through)"
    lines = [f"tandem gate: {verb}: code waits until its plan is approved (gate.plan_first)."]
    lines += [f"  not approved as it is: {plan}" for plan in plans[:_MOST_FILES]]
    if len(plans) > _MOST_FILES:
        lines.append(f"  … and {len(plans) - _MOST_FILES} more")
    lines += [_commit_line(commit) for commit in commits[:_MOST_COMMITS]]
    lines.append(f"The plan in {root} applies; run the command there, then commit again.")
    lines.append(f"Next: {plan_command(plans[0])}")
    return "\n".join(lines)


def plan_command(plan: str) -> str:
    return f'tandem propose --path {shlex.quote(plan)} -m "WHAT AND WHY" --category plan_review --wait'


def _commit_line(commit: Commit) -> str:
    subject = shown_path(commit.subject.encode("utf-8", "surrogateescape"))
    return f"  commit {commit.id[:_SHORT_ID]} {subject}".rstrip()


def _lines(refusal: Refusal) -> list[str]:
    files = ", ".join(refusal.files[:_MOST_FILES])
    more = len(refusal.files) - _MOST_FILES
    lines = [
        _commit_line(refusal.commit),
        f"    without approval: {files}" + (f" and {more} more" if more > 0 else ""),
    ]
    if refusal.nearest is not None:
        lines.append(f"    {_sentence(refusal.nearest)}")
    return lines


def _sentence(nearest: Nearest) -> str:
    review = f"nearest review {nearest.review_id}"
    match nearest.standing:
        case "changed":
            return f"{review} is approved, and the content changed after that in {', '.join(nearest.differs_in)}"
        case "needs_person":
            return f"{review} is approved, but these paths need a person's approval"
        case "stale":
            return f"{review} is approved for another base; propose the change as it is now"
        case standing:
            lacking = f" and needs {' and '.join(nearest.missing)}" if nearest.missing else ""
            return f"{review} is {standing}{lacking}"
