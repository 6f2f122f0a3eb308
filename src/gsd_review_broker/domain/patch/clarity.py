"""Diffs are refused if they leave open which of two sections counts, or what kind of file a mode means."""

from gsd_review_broker.domain.patch.reading import FilePatch

_KINDS = {"100644": "file", "100755": "file", "120000": "link", "160000": "submodule"}
_MOST_NAMED = 5


def unclear_sections(files: tuple[FilePatch, ...]) -> str | None:
    """Why a reader could be mistaken about the outcome; None if nothing is unclear."""
    repeated = _repeated(files)
    if repeated:
        return f"it changes a path more than once: {', '.join(map(repr, repeated[:_MOST_NAMED]))}"
    modes = {mode for file in files for mode in (file.old_mode, file.new_mode) if mode and mode not in _KINDS}
    if modes:
        return f"it names file modes that git does not store: {', '.join(sorted(modes)[:_MOST_NAMED])}"
    return None


def _repeated(files: tuple[FilePatch, ...]) -> list[str]:
    """Paths that two sections write or remove. One pair is git's own way to write a change: a file that becomes a link
    or a submodule, or the other way round, is removed and then created."""
    changed: dict[str, FilePatch] = {}
    repeated: set[str] = set()
    for file in files:
        for path in _changed(file):
            earlier = changed.get(path)
            if earlier is not None and not _changes_kind(earlier, file):
                repeated.add(path)
            changed[path] = file
    return sorted(repeated)


def _changed(file: FilePatch) -> set[str]:
    paths = {file.new_path, None if file.copied else file.old_path}
    return {path for path in paths if path is not None}


def _changes_kind(removed: FilePatch, created: FilePatch) -> bool:
    if removed.new_path is not None or created.old_path is not None:
        return False
    return _KINDS.get(removed.old_mode or "") != _KINDS.get(created.new_mode or "")
