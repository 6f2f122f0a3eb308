"""Whose turn it is, by the words of the wire. Without imports: the command line reads it at every start."""

# The proposer reads a verdict, or that it is over.
PROPOSERS_TURN = frozenset({"approved", "changes_requested", "closed"})
REVIEWERS_TURN = frozenset({"pending", "claimed", "in_review"})


def proposer_must_act(status: str, counter_patch_status: str | None) -> bool:
    """A verdict, the end, or an offer to answer."""
    return status in PROPOSERS_TURN or counter_patch_status == "pending"
