"""Reading a unified diff: what it touches, whether its paths are safe, how it is cut into pages.

All functions are pure and work on bytes. Only a line feed ends a line: a diff may carry any other character inside one.
Git decides whether a diff applies. Tests and fuzzing check that this package reads a diff as git does.
"""
