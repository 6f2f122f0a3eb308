"""The same statements on PostgreSQL: the engine, one transaction for each command, and copies."""
