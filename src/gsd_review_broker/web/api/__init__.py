"""JSON for the command line, the git hook and monitors."""
