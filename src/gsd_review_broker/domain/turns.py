"""Whose turn it is, in the words of the wire. It has no imports: the command line reads it at every start."""

# The proposer reads a verdict, or that it is over.
PROPOSERS_TURN = frozenset({"approved", "changes_requested", "closed"})
REVIEWERS_TURN = frozenset({"pending", "claimed", "in_review"})


def proposer_must_act(status: str, counter_patch_status: str | None) -> bool:
    """There is a verdict, the review is closed, or there is an offer to answer."""
    return status in PROPOSERS_TURN or counter_patch_status == "pending"
