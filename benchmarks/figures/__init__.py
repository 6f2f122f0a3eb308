"""One module for each theme; each measures on the stage and returns its figures."""
