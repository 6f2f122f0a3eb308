"""The pages' names for each status. Separate from the templates, which are loaded with the first page."""

from gsd_review_broker.domain.words import Status

STATUS_WORDS = {status.value: status.replace("_", " ").capitalize() for status in Status}
# Shown beside the colour, for readers who cannot tell colours apart.
STATUS_MARKS = {
    Status.PENDING: "○",
    Status.CLAIMED: "◐",
    Status.IN_REVIEW: "◑",
    Status.APPROVED: "✓",
    Status.CHANGES_REQUESTED: "↺",
    Status.CLOSED: "■",
}
