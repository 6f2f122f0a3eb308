"""The command line, `tandem`: one module for several commands, and what they share. It starts quickly (ADR 5)."""
