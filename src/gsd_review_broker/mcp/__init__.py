"""The tools over MCP: what a tool is, the fast path of a plain call, and the SDK for everything else."""
