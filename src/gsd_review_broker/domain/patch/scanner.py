"""Walking through a diff line by line. A line ends at a line feed and nowhere else."""


class UnreadableDiffError(ValueError):
    """Not a diff that git would read. The text says where."""


class Scanner:
    """A place in the diff, and the line that begins there."""

    def __init__(self, diff: bytes) -> None:
        self.diff = diff
        self.at = 0

    @property
    def more(self) -> bool:
        return self.at < len(self.diff)

    @property
    def line(self) -> bytes:
        """The line without its line feed. This copies the line: check with starts() first."""
        return self.diff[self.at : self._end()]

    @property
    def is_ended(self) -> bool:
        """Does a line feed end the line? Git accepts no header or hunk line without one."""
        return self._end() < len(self.diff)

    def starts(self, prefix: bytes) -> bool:
        return self.diff.startswith(prefix, self.at)

    def after(self, prefix: bytes) -> bytes:
        return self.diff[self.at + len(prefix) : self._end()]

    def followed_by(self, prefix: bytes) -> bool:
        """Does the next line start with this?"""
        return self.diff.startswith(prefix, self._end() + 1)

    def next(self) -> None:
        self.at = min(self._end() + 1, len(self.diff))

    def _end(self) -> int:
        line_feed = self.diff.find(b"\n", self.at)
        return len(self.diff) if line_feed < 0 else line_feed
