"""GSD Tandem's review broker."""

__version__ = "0.1.0"
# The names of this machine itself. They are here and not among the words of the domain, because the git hook reads
# them: it runs at every update of a reference, and enums would double its imports.
LOOPBACK = ("127.0.0.1", "localhost", "::1")
