"""Markdown files rendered for reading. The parser decides how characters look; the file decides which are there."""
