"""Reviewer programs that the broker starts, scales and stops."""
