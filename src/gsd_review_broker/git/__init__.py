"""What git says: which repository this is, what a change is, and whether a diff applies as it shows."""
