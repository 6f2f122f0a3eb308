"""Logs, traces and meters."""
