"""Setting up each client: its own configuration, written and taken back exactly."""
