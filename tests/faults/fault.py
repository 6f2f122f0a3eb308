"""One fault: what is changed in which file, and which tests fail then."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    name: str
    # Below src/gsd_review_broker.
    file: str
    # Old and new text. Each old text is in the file exactly once.
    edits: tuple[tuple[str, str], ...]
    # Each of these has to fail.
    tests: tuple[str, ...]
    # File, old and new text, where one defence stands behind another: the test fails only without both.
    also: tuple[tuple[str, str, str], ...] = ()

    @property
    def edits_by_file(self) -> dict[str, list[tuple[str, str]]]:
        by_file = {self.file: list(self.edits)}
        for file, old, new in self.also:
            by_file.setdefault(file, []).append((old, new))
        return by_file


def fault(name: str, file: str, old: str, new: str, *tests: str) -> Fault:
    return Fault(name=name, file=file, edits=((old, new),), tests=tests)
