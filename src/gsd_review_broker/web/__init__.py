"""HTTP beside MCP: the guard on every route, and the broker's health."""
