"""What changes a review: one class for each subject, called by every front end."""
