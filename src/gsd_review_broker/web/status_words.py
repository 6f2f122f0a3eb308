"""The pages' names for each status. Separate from the templates, which are loaded with the first page."""

STATUS_WORDS = {
    "pending": "Pending",
    "claimed": "Claimed",
    "in_review": "In review",
    "approved": "Approved",
    "changes_requested": "Changes requested",
    "closed": "Closed",
}
# Shown beside the colour, for readers who cannot tell colours apart.
STATUS_MARKS = {
    "pending": "○",
    "claimed": "◐",
    "in_review": "◑",
    "approved": "✓",
    "changes_requested": "↺",
    "closed": "■",
}
