"""Is GSD installed here? Both of its lines have a folder of their own below a client's."""

from pathlib import Path

_FOLDERS = ("get-shit-done", "gsd-core")
_CLIENTS = (".claude", ".codex")


def gsd_folder(root: Path, home: Path) -> Path | None:
    places = [base / client / folder for base in (root, home) for client in _CLIENTS for folder in _FOLDERS]
    return next((place for place in places if place.is_dir()), None)
