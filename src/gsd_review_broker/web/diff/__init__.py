"""A diff as people read it: rows with highlighting and changed words, and warnings about hidden content."""
