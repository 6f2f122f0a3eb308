"""Unusual diffs that git itself makes, or at least reads.

They come from a repository made for the purpose: one base commit (checked out), and one commit for each change.
Plumbing commands make it all, so that names need not be valid in the file system.
"""

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FILE, PROGRAM, LINK, MODULE = "100644", "100755", "120000", "160000"
Tree = dict[bytes, tuple[str, bytes] | None]


def git(folder: Path, *arguments: str, stdin: bytes = b"", may_fail: bool = False) -> bytes:
    answer = run_git(folder, *arguments, stdin=stdin)
    if not may_fail:
        assert answer.returncode == 0, answer.stderr.decode("utf-8", "replace")
    return answer.stdout


def run_git(folder: Path, *arguments: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    environment = {
        "PATH": os.environ["PATH"],
        "LC_ALL": "C",
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_AUTHOR_NAME": "Test",
        "GIT_AUTHOR_EMAIL": "test@example.org",
        "GIT_COMMITTER_NAME": "Test",
        "GIT_COMMITTER_EMAIL": "test@example.org",
    }
    command = ["git", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, input=stdin, capture_output=True, check=False)


def _lines(*numbers: range, end: bytes = b"\n") -> bytes:
    return b"".join(b"line %d%b" % (number, end) for numbers_ in numbers for number in numbers_)


def _noise(size: int, seed: int) -> bytes:
    """Does not compress, and is the same each time."""
    state, noise = seed, bytearray()
    for _ in range(size):
        state = (state * 1103515245 + 12345) % 2**31
        noise.append(state >> 16 & 0xFF)
    return b"\0" + bytes(noise)


_TWENTY = _lines(range(20))
_CHANGED = _lines(range(5)) + b"something else\n" + _lines(range(6, 20))
_LOOKS_LIKE_A_DIFF = b"""diff --git a/x b/x
new file mode 120000
--- a/x
+++ b/x
@@ -1 +1 @@
-old
+new
-- ../../outside
++ .git/config
rename from ../x
GIT binary patch
"""
_COMMIT = b"1234567890123456789012345678901234567890"
_OTHER_COMMIT = b"abcdefabcdefabcdefabcdefabcdefabcdefabcd"

ODD_NAMES = {
    "space": b"with space and  two.txt",
    "space at the end": b"at the end ",
    "space before a slash": b"some folder /b/x",
    "tab": b"with\ttab",
    "quote": b'with "quotes"',
    "line feed": b"with\nline\n+++ b/feed",
    "carriage return": b"with\rreturn\r",
    "line separator": "with\u2028separator".encode(),
    "umlaut": "Übermut/größe".encode(),
    "not utf-8": b"with\xff\xfebytes",
    "backslash": b"back\\slash\\101",
    "dashes": b"--- a/x",
    "dash": b"-rf",
    "arrow": b"a => b",
    "escape": b"esc\x1b[31m",
    "prefix alike": b"a/b/a b/a",
    "twice": b"x b/x",
    "long": b"/".join([b"long" * 50] * 5),
    "date": b"x 2020-01-01 10:00:00",
}

_BASE: Tree = {
    b"twenty.txt": (FILE, _TWENTY),
    b"other.txt": (FILE, _lines(range(100, 130))),
    b"hundred.txt": (FILE, _lines(range(100))),
    b"open.txt": (FILE, b"one\ntwo\nopen end"),
    b"closed.txt": (FILE, b"one\ntwo\nclosed end\n"),
    b"crlf.txt": (FILE, _lines(range(9), end=b"\r\n")),
    b"returns.txt": (FILE, b"a\rb\rc\nd\re\n"),
    b"empty.txt": (FILE, b""),
    b"blank.txt": (FILE, b"a\n\nb\n\nc\n\nd\n"),
    b"one.txt": (FILE, b"one\n"),
    b"program.sh": (PROGRAM, b"#!/bin/sh\n" + _TWENTY),
    b"image.bin": (FILE, _noise(3000, 1)),
    b"latin.txt": (FILE, b"caf\xe9\n" + _TWENTY),
    b"link": (LINK, b"twenty.txt"),
    b"module": (MODULE, _COMMIT),
    b"change.diff": (FILE, _LOOKS_LIKE_A_DIFF * 2),
    b"folder/deep/file.txt": (FILE, _TWENTY),
    **dict.fromkeys(ODD_NAMES.values(), (FILE, _TWENTY)),
}

_CHANGES: dict[str, Tree] = {
    "create": {b"new.txt": (FILE, _TWENTY)},
    "create in a new folder": {b"very/new/file.txt": (FILE, b"one line\n")},
    "create a program": {b"new.sh": (PROGRAM, b"#!/bin/sh\n")},
    "modify": {b"twenty.txt": (FILE, _CHANGED)},
    "modify in several places": {
        b"hundred.txt": (FILE, b"first\n" + _lines(range(1, 50), range(52, 90), range(91, 100)) + b"last\n")
    },
    "modify many": {b"twenty.txt": (FILE, _CHANGED), b"other.txt": (FILE, b""), b"one.txt": (FILE, b"uno\n")},
    "delete": {b"twenty.txt": None},
    "rename": {b"other.txt": None, b"renamed.txt": (FILE, _lines(range(100, 130)))},
    "rename with edit": {b"hundred.txt": None, b"a/moved.txt": (FILE, _lines(range(95)) + b"end\n")},
    "rename with mode and edit": {b"hundred.txt": None, b"moved.sh": (PROGRAM, _lines(range(99)))},
    "rename to an odd name": {b"hundred.txt": None, b'odd "\t name': (FILE, _lines(range(99)))},
    "swap": {b"twenty.txt": (FILE, _lines(range(100, 130))), b"other.txt": (FILE, _TWENTY)},
    "copy": {b"copied.txt": (FILE, _lines(range(100)))},
    "copy with edit": {b"copied.txt": (FILE, _lines(range(97))), b"hundred.txt": (FILE, _lines(range(99)))},
    "mode": {b"twenty.txt": (PROGRAM, _TWENTY)},
    "mode back": {b"program.sh": (FILE, b"#!/bin/sh\n" + _TWENTY)},
    "mode and edit": {b"twenty.txt": (PROGRAM, _CHANGED)},
    "binary created": {b"new.bin": (FILE, _noise(500, 2))},
    "binary literal": {b"image.bin": (FILE, _noise(700, 3))},
    "binary delta": {b"image.bin": (FILE, _noise(3000, 1)[:1500] + b"inserted" + _noise(3000, 1)[1500:])},
    "binary deleted": {b"image.bin": None},
    "binary and text": {b"image.bin": (FILE, b"\0"), b"twenty.txt": (FILE, _CHANGED), b"zero.bin": (FILE, b"\0" * 9)},
    "binary to text": {b"image.bin": (FILE, b"now text\n")},
    "binary renamed": {b"image.bin": None, b"picture.bin": (FILE, _noise(3000, 1)[:2900] + b"end")},
    "binary program": {b"image.bin": (PROGRAM, _noise(3000, 4))},
    "link created": {b"new-link": (LINK, b"../somewhere/else")},
    "link changed": {b"link": (LINK, b"other.txt")},
    "link deleted": {b"link": None},
    "link becomes a file": {b"link": (FILE, b"a file\n")},
    "file becomes a link": {b"one.txt": (LINK, b"twenty.txt")},
    "file becomes a folder": {b"one.txt": None, b"one.txt/inside": (FILE, b"one\n")},
    "module created": {b"new-module": (MODULE, _COMMIT)},
    "module changed": {b"module": (MODULE, _OTHER_COMMIT)},
    "module deleted": {b"module": None},
    "end opened": {b"closed.txt": (FILE, b"one\ntwo\nclosed end")},
    "end closed": {b"open.txt": (FILE, b"one\ntwo\nopen end\n")},
    "end stays open": {b"open.txt": (FILE, b"one\nzwei\nopen end")},
    "open end changed": {b"open.txt": (FILE, b"one\ntwo\nanother open end")},
    "open end created": {b"new.txt": (FILE, b"open")},
    "open end deleted": {b"open.txt": None},
    "open end in the middle": {b"open.txt": (FILE, b"one\ntwo\nopen end\nthree\n")},
    "crlf": {b"crlf.txt": (FILE, _lines(range(4), end=b"\r\n") + b"x\r\n" + _lines(range(5, 9), end=b"\r\n"))},
    "crlf to lf": {b"crlf.txt": (FILE, _lines(range(9)))},
    "returns inside lines": {b"returns.txt": (FILE, b"a\rb\rc\nd\re\nf\r\r\ng\r")},
    "empty created": {b"nothing": (FILE, b"")},
    "empty deleted": {b"empty.txt": None},
    "empty filled": {b"empty.txt": (FILE, b"no more\n")},
    "emptied": {b"twenty.txt": (FILE, b"")},
    "blank lines": {b"blank.txt": (FILE, b"a\n\nB\n\nc\n\nd\n")},
    "diff in a diff": {b"change.diff": (FILE, b"@@ -1 +1 @@\n" + _LOOKS_LIKE_A_DIFF + b"--- a/y\n+++ b/y\n")},
    "diff in a new file": {b"new.diff": (FILE, _LOOKS_LIKE_A_DIFF)},
    "diff in a deleted file": {b"change.diff": None},
    "unusual separators": {b"new.txt": (FILE, "a\u2028b\u2029c\x0bd\x0ce\x85f\x1cg\n".encode() * 3)},
    "not utf-8": {b"latin.txt": (FILE, b"caf\xe9 cr\xe8me\n" + _TWENTY)},
    "rewrite": {b"twenty.txt": (FILE, _lines(range(500, 540)))},
}
for _label, _name in ODD_NAMES.items():
    _CHANGES[f"name with {_label} modified"] = {_name: (FILE, _CHANGED)}
    _CHANGES[f"name with {_label} deleted"] = {_name: None}
    # Git before 2.41 cannot find the name again where the first line alone has it and a folder ends in a space.
    if _label != "space before a slash":
        _CHANGES[f"name with {_label} made a program"] = {_name: (PROGRAM, _TWENTY)}
        _CHANGES[f"name with {_label} created empty"] = {_name + b"x": (FILE, b"")}
    _CHANGES[f"name with {_label} renamed"] = {_name: None, b"new/" + _name: (FILE, _TWENTY + b"end\n")}

_ALL = ("--binary", "-M", "-C")
_OPTIONS: dict[str, tuple[str, ...]] = {
    "copy": (*_ALL, "--find-copies-harder"),
    "rewrite": (*_ALL, "-B"),
    "swap": (*_ALL, "-B"),
}


@dataclass(frozen=True, kw_only=True)
class Odd:
    """A diff, and the commit that makes the same change on the base (None if it was edited by hand)."""

    name: str
    diff: bytes
    commit: str | None = None

    @property
    def is_text(self) -> bool:
        try:
            return bool(self.diff.decode("utf-8"))
        except UnicodeDecodeError:
            return False


@dataclass(frozen=True, kw_only=True)
class Corpus:
    folder: Path
    odd: tuple[Odd, ...]

    def __getitem__(self, name: str) -> Odd:
        return next(odd for odd in self.odd if odd.name == name)


def make_corpus(folder: Path) -> Corpus:
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    labels = list(_CHANGES)
    stream = [_commit("refs/heads/main", None, _BASE)]
    stream += [
        _commit(f"refs/heads/change-{number}", "refs/heads/main", _CHANGES[label])
        for number, label in enumerate(labels)
    ]
    git(folder, "fast-import", "--quiet", stdin=b"".join(stream))
    git(folder, "reset", "-q", "--hard")
    tips = git(folder, "for-each-ref", "--format=%(refname:short) %(objectname)").decode().splitlines()
    commits = dict(line.split(" ") for line in tips)
    odd = [
        _between(folder, label, commits[f"change-{number}"], _OPTIONS.get(label, _ALL))
        for number, label in enumerate(labels)
    ]
    corpus = {one.name: one for one in odd}
    return Corpus(folder=folder, odd=(*odd, *_variants(folder, corpus), *_traditional(corpus), *_by_hand(corpus)))


def _commit(ref: str, parent: str | None, tree: Tree) -> bytes:
    head = b"commit %b\ncommitter T <t@example.org> 1000000000 +0000\ndata 7\nchange\n\n"
    commands = [head % ref.encode()]
    if parent is not None:
        commands.append(b"from %b\n" % parent.encode())
    for path, entry in tree.items():
        if entry is None:
            commands.append(b"D %b\n" % quoted(path))
        elif entry[0] == MODULE:
            commands.append(b"M %b %b %b\n" % (MODULE.encode(), entry[1], quoted(path)))
        else:
            mode, content = entry
            commands.append(b"M %b inline %b\ndata %d\n%b\n" % (mode.encode(), quoted(path), len(content), content))
    return b"".join(commands) + b"\n"


def diff_of_trees(folder: Path, before: Tree, after: Tree, *options: str) -> bytes:
    """What git makes of two trees that are not related to the rest of the repository."""
    stream = [
        b"reset %b\n\n" % ref.encode() + _commit(ref, None, tree)
        for ref, tree in (("refs/fuzz/before", before), ("refs/fuzz/after", after))
    ]
    git(folder, "fast-import", "--quiet", "--force", stdin=b"".join(stream))
    return git(folder, "diff", *options, "refs/fuzz/before", "refs/fuzz/after", "--")


def quoted(path: bytes) -> bytes:
    return (
        b'"'
        + b"".join(b"\\%03o" % byte if byte < 33 or byte > 126 or byte in b'"\\' else bytes([byte]) for byte in path)
        + b'"'
    )


def _between(folder: Path, label: str, commit: str, options: tuple[str, ...], *config: str) -> Odd:
    diff = git(folder, *config, "diff", *options, "main", commit, "--")
    return Odd(name=label, diff=diff, commit=commit)


def _variants(folder: Path, corpus: dict[str, Odd]) -> list[Odd]:
    """The same changes as git writes them with other options."""

    def again(label: str, how: str, options: tuple[str, ...], *config: str) -> Odd:
        return _between(folder, f"{label}, {how}", corpus[label].commit or "", options, *config)

    several = "modify in several places"
    unquoted = [
        again(f"name with {label} {what}", "unquoted", _ALL, "-c", "core.quotePath=false")
        for label in ODD_NAMES
        for what in ("modified", "made a program", "renamed")
        if f"name with {label} {what}" in corpus
    ]
    return [
        *unquoted,
        *(again(label, "without context", ("-U0",)) for label in (several, "create", "delete", "emptied", "rewrite")),
        *(
            again(label, "without data", ("-M",))
            for label in ("binary created", "binary delta", "binary renamed", "binary and text")
        ),
        *(again(label, "no renames", ("--no-renames",)) for label in ("rename with edit", "swap")),
        again(several, "in one hunk", ("--inter-hunk-context=100", "--function-context")),
        again(several, "other prefixes", ("--src-prefix=before/", "--dst-prefix=after/")),
        again(several, "full index", ("--full-index", "--patience", "--stat", "-p", "--summary")),
        again("mode", "raw before it", ("--patch-with-raw",)),
        again("delete", "irreversible", ("-D",)),
        Odd(name="mail", diff=_mail(folder, corpus[several])),
        Odd(name="mails", diff=_mail(folder, corpus["rename with edit"]) + _mail(folder, corpus["mode"])),
        Odd(name="shown commit", diff=git(folder, "show", "--stat", "-p", corpus[several].commit or "")),
        Odd(name="everything", diff=b"".join(odd.diff for odd in corpus.values())),
    ]


def _mail(folder: Path, odd: Odd) -> bytes:
    return git(folder, "format-patch", "--stdout", "--cover-letter", "-M", f"main..{odd.commit}")


def _traditional(corpus: dict[str, Odd]) -> list[Odd]:
    """As `diff -u` writes them: no git header, dates after the names."""
    date, epoch = b"\t2024-05-06 07:08:09.123456789 +0200", b"\t1970-01-01 01:00:00.000000000 +0100"

    def plain(label: str, change: Callable[[bytes], bytes]) -> bytes:
        _header, three_dashes, rest = corpus[label].diff.partition(b"--- ")
        return change(three_dashes + rest)

    def dated(diff: bytes, old: bytes, new: bytes) -> bytes:
        first, second, rest = diff.split(b"\n", 2)
        return b"\n".join([first + old, second + new, rest])

    several = "modify in several places"
    return [
        Odd(name="traditional", diff=plain(several, lambda diff: diff)),
        Odd(name="traditional, dates", diff=plain(several, lambda diff: dated(diff, date, date))),
        Odd(
            name="traditional, dates after spaces",
            diff=plain(several, lambda diff: dated(diff, b"   2024-05-06 07:08:09", b" 24-05-06")),
        ),
        Odd(name="traditional, command above", diff=b"diff -ru a/hundred.txt b/hundred.txt\n" + plain(several, bytes)),
        Odd(
            name="traditional, text around",
            diff=b"Only in a: x\n\n" + plain(several, bytes) + b"\nOnly in b: y\n-- \n2.0\n",
        ),
        Odd(name="traditional, created", diff=plain("create", bytes)),
        Odd(
            name="traditional, created since 1970",
            diff=plain("create", lambda diff: dated(diff.replace(b"/dev/null", b"a/new.txt"), epoch, date)),
        ),
        Odd(
            name="traditional, created at line 0",
            diff=plain("create", lambda diff: diff.replace(b"/dev/null", b"a/new.txt")),
        ),
        Odd(name="traditional, deleted", diff=plain("delete", bytes)),
        Odd(
            name="traditional, deleted in 1969",
            diff=plain(
                "delete",
                lambda diff: dated(diff.replace(b"/dev/null", b"b/twenty.txt"), date, b"\t1969-12-31 16:00:00 -0800"),
            ),
        ),
        Odd(
            name="traditional, no prefix",
            diff=plain(several, lambda diff: diff.replace(b"a/h", b"h").replace(b"b/h", b"h")),
        ),
        Odd(
            name="traditional, no prefix and then one",
            diff=plain(several, lambda diff: diff.replace(b"a/h", b"h").replace(b"b/h", b"h"))
            + corpus["modify"].diff.replace(b"b/twenty", b"a/twenty"),
        ),
        Odd(
            name="traditional, original beside it",
            diff=plain(several, lambda diff: diff.replace(b"a/hundred.txt", b"a/hundred.txt.orig")),
        ),
        Odd(
            name="traditional, backup is new",
            diff=plain(several, lambda diff: diff.replace(b"b/hundred.txt", b"b/hundred.txt~")),
        ),
        Odd(name="traditional, quoted", diff=plain("name with tab modified", bytes)),
        Odd(
            name="traditional, space", diff=plain("name with space modified", lambda diff: diff.replace(b"\t\n", b"\n"))
        ),
    ]


def _by_hand(corpus: dict[str, Odd]) -> list[Odd]:
    modify, blank = corpus["modify"].diff, corpus["blank lines"].diff
    return [
        Odd(name="empty context stripped", diff=blank.replace(b"\n \n", b"\n\n").replace(b"\n \n", b"\n\n")),
        Odd(name="header lines end in CRLF", diff=modify.replace(b".txt\n", b".txt\r\n")),
        Odd(name="double slashes", diff=modify.replace(b" a/", b" a/x//").replace(b" b/", b" b/x//")),
        Odd(name="renamed without a word", diff=modify.replace(b"+++ b/twenty", b"+++ b/thirty")),
        Odd(
            name="old words for rename",
            diff=corpus["rename"].diff.replace(b"rename from", b"rename old").replace(b"rename to", b"rename new"),
        ),
        Odd(name="index without mode", diff=modify.replace(b" 100644\n", b"\n")),
        Odd(
            name="no index",
            diff=b"".join(line for line in modify.splitlines(keepends=True) if not line.startswith(b"index")),
        ),
        Odd(name="hunk header with text", diff=modify.replace(b" @@", b" @@ def f(): @@ -1 +1 @@")),
        Odd(
            name="marker in another language",
            diff=corpus["end opened"].diff.replace(b"\\ No newline at end of file", b"\\ Kein Zeilenumbruch"),
        ),
        Odd(name="bare header at the end", diff=modify + b"diff --git a/one.txt b/one.txt\n"),
        Odd(name="same file twice", diff=modify + modify),
        Odd(name="nul in the content", diff=modify.replace(b"something", b"some\0thing")),
    ]
