"""Sets up each client: its own configuration, written and undone exactly.

`clients` has one module for each client, which says what it needs and where. `planning` computes the changes and
carries them out. `formats` edits JSON and TOML as text, so that foreign entries keep every byte. `files` replaces a
file. `receipts` plans one file, and keeps what it said before. `detection` tells what is installed.
"""
