"""A diff as people read it: rows with highlighting and changed words, and warnings for what hides from the eye."""
