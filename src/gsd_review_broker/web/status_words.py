"""What pages call a status, once for all of them. Apart from the templates, which are loaded with the first page."""

STATUS_WORDS = {
    "pending": "Pending",
    "claimed": "Claimed",
    "in_review": "In review",
    "approved": "Approved",
    "changes_requested": "Changes requested",
    "closed": "Closed",
}
# Beside the colour, for those who cannot tell colours apart.
STATUS_MARKS = {
    "pending": "○",
    "claimed": "◐",
    "in_review": "◑",
    "approved": "✓",
    "changes_requested": "↺",
    "closed": "■",
}
