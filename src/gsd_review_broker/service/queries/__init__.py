"""What reads: lists, the inbox, a proposal, a review's page."""
