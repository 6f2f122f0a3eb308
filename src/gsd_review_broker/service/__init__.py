"""What every front end calls. A command is one transaction; git and child processes run before or after it."""
