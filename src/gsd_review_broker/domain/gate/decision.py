"""Say which commits an approval covers: contents and approvals in, an answer for each commit out. Here are also the
records that the broker keeps for it: reviewed changes, overrides, and the commits that landed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from gsd_review_broker.domain.gate.policy import GatePolicy
from gsd_review_broker.domain.gate.records import Entry, Step, Steps, composed, parse_records
from gsd_review_broker.domain.model import Milliseconds, ReviewId
from gsd_review_broker.domain.text import Identity, is_human

# How many combinations of reviews are tried for one commit, and how long a range may be.
MOST_COMBINATIONS = 2_000
LONGEST_RANGE = 200


class Because(StrEnum):
    EMPTY = "empty"
    EXEMPT = "exempt"
    MERGE = "merge"
    REVIEW = "review"
    REVIEWS = "reviews"
    RANGE = "range"
    CARRIED = "carried"
    OVERRIDE = "override"


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """Its change against its first parent. `is_clean_merge`: its tree is what git makes of its parents."""

    id: str
    tree: str = ""
    parents: tuple[str, ...] = ()
    subject: str = ""
    steps: Steps = field(default_factory=dict[bytes, Step])
    is_clean_merge: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Approval:
    review_id: str
    by_person: bool
    steps: Steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Covered:
    because: Because
    reviews: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RepositoryId:
    """Which repository a change belongs to: its root commit, which clones share, and its git folder on this machine.
    The root is None before the first commit and in a shallow clone."""

    root: str | None
    folder: str

    def is_same(self, other: "RepositoryId") -> bool:
        return self.folder == other.folder or (self.root is not None and self.root == other.root)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReviewedChange:
    """The exact change that a claim is about, and later its approval."""

    review_id: ReviewId
    revision: int
    digest: str
    repository: str | None
    folder: str
    # The sorted records that the digest is made of.
    records: bytes
    proposer: Identity | None = None
    reviewer: Identity | None = None
    approved_at: Milliseconds | None = None
    receipt: str | None = None
    landed_at: Milliseconds | None = None

    @property
    def origin(self) -> RepositoryId:
        return RepositoryId(root=self.repository, folder=self.folder)

    def approval(self) -> Approval:
        by_person = is_human(self.reviewer or "")
        return Approval(review_id=self.review_id, by_person=by_person, steps=parse_records(self.records))


@dataclass(frozen=True, kw_only=True, slots=True)
class GateOverride:
    """A person lets commits through, with a reason and an end."""

    id: int | None = None
    repository: str | None
    folder: str
    person: Identity
    reason: str
    created_at: Milliseconds
    until: Milliseconds


@dataclass(frozen=True, kw_only=True, slots=True)
class LandedCommit:
    """A commit that a guarded branch gained. `because` is None where nothing covers it."""

    folder: str
    commit_id: str
    branch: str
    digest: str
    subject: str
    because: Because | None
    reviews: tuple[ReviewId, ...]
    override_id: int | None
    landed_at: Milliseconds


def decide(commits: Sequence[Commit], approvals: Iterable[Approval], policy: GatePolicy) -> dict[str, Covered]:
    """Map the commits that are covered to what covers them. `commits` are oldest first."""
    usable = _usable(approvals, policy)
    covered: dict[str, Covered] = {}
    guarded = {commit.id: without_exempt(commit.steps, policy) for commit in commits}
    for commit in commits:
        answer = _alone(commit, guarded[commit.id], usable)
        if answer is not None:
            covered[commit.id] = answer
    for chain in chains(commits):
        _cover_ranges(chain, guarded, usable, covered)
    return covered


def without_exempt(steps: Steps, policy: GatePolicy) -> Steps:
    return {path: step for path, step in steps.items() if not policy.is_exempt(path)}


def _usable(approvals: Iterable[Approval], policy: GatePolicy) -> list[Approval]:
    """Leave the guarded paths alone, and drop what needs a person's approval and has none."""
    usable: list[Approval] = []
    for approval in approvals:
        steps = without_exempt(approval.steps, policy)
        if steps and may_cover(approval, steps, policy):
            usable.append(replace(approval, steps=steps))
    return usable


def may_cover(approval: Approval, paths: Iterable[bytes], policy: GatePolicy) -> bool:
    return approval.by_person or not any(policy.needs_person(path) for path in paths)


def _alone(commit: Commit, steps: Steps, approvals: Sequence[Approval]) -> Covered | None:
    if commit.is_clean_merge:
        return Covered(because=Because.MERGE)
    if not steps:
        return Covered(because=Because.EXEMPT if commit.steps else Because.EMPTY)
    for approval in approvals:
        if approval.steps == steps:
            return Covered(because=Because.REVIEW, reviews=(approval.review_id,))
    used = _Search(steps, approvals).run() or ()
    together = tuple(approvals[number].review_id for number in used)
    return Covered(because=Because.REVIEWS, reviews=together) if together else None


class _Search:
    """Applies approved changes one after the other, each whole and once, until the wanted content is reached."""

    def __init__(self, steps: Steps, approvals: Sequence[Approval]) -> None:
        self._start: dict[bytes, Entry] = {path: step.old for path, step in steps.items()}
        self._goal: dict[bytes, Entry] = {path: step.new for path, step in steps.items()}
        self._approvals = approvals
        self._seen: set[frozenset[int]] = set()

    def run(self) -> tuple[int, ...] | None:
        return self._from(self._start, ())

    def _from(self, state: dict[bytes, Entry], used: tuple[int, ...]) -> tuple[int, ...] | None:
        open_paths = {path for path, entry in state.items() if self._goal.get(path, self._start.get(path)) != entry}
        if used and not open_paths:
            return used
        key = frozenset(used)
        if key in self._seen or len(self._seen) >= MOST_COMBINATIONS:
            return None
        self._seen.add(key)
        for number, approval in enumerate(self._approvals):
            if number not in used and self._fits(approval, state, open_paths):
                answer = self._from(state | {path: step.new for path, step in approval.steps.items()}, (*used, number))
                if answer is not None:
                    return answer
        return None

    def _fits(self, approval: Approval, state: dict[bytes, Entry], open_paths: set[bytes]) -> bool:
        if not any(path in open_paths for path in approval.steps):
            return False
        for path, step in approval.steps.items():
            if path not in state:
                # A path that is not in the commit has to come back to where it began.
                self._start.setdefault(path, step.old)
            if state.get(path, self._start[path]) != step.old:
                return False
        return True


def chains(commits: Sequence[Commit]) -> list[list[Commit]]:
    """Runs of ordinary commits, each the first parent of the next."""
    chains: list[list[Commit]] = []
    ending_at: dict[str, list[Commit]] = {}
    for commit in commits:
        if len(commit.parents) > 1:
            continue
        chain = ending_at.pop(commit.parents[0], None) if commit.parents else None
        if chain is None:
            chain = list[Commit]()
            chains.append(chain)
        chain.append(commit)
        ending_at[commit.id] = chain
    return [chain for chain in chains if 1 < len(chain) <= LONGEST_RANGE]


def _cover_ranges(
    chain: list[Commit], guarded: dict[str, Steps], approvals: Sequence[Approval], covered: dict[str, Covered]
) -> None:
    """Cover each range whose combined change equals one approved review."""
    for first in range(len(chain)):
        whole: Steps | None = {}
        for last in range(first, len(chain)):
            whole = composed((whole, guarded[chain[last].id]))
            if whole is None:
                break
            run = chain[first : last + 1]
            if last == first or all(commit.id in covered for commit in run):
                continue
            review = next((approval.review_id for approval in approvals if approval.steps == whole), None)
            if review is not None:
                for commit in run:
                    covered.setdefault(commit.id, Covered(because=Because.RANGE, reviews=(review,)))
