"""Diffs against the repository that the fixtures make (hello.txt: one, two, three)."""


def change_line(old: str = "two", new: str = "deux", *, path: str = "hello.txt") -> str:
    return f"--- a/{path}\n+++ b/{path}\n@@ -1,3 +1,3 @@\n one\n-{old}\n+{new}\n three\n"


GOOD = change_line()
BETTER = change_line(new="zwei")
STALE = change_line(old="never there")
