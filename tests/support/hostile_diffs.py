"""Diffs that nobody should send, and the broker's answer to each."""

import base64
import hashlib
import zlib
from dataclasses import dataclass

from tests.support.diffs import FILE, LINK, MODULE, PROGRAM


@dataclass(frozen=True, kw_only=True)
class Hostile:
    """A diff and the broker's answer: an error's code at once, or None if the claim rejects it."""

    name: str
    diff: str
    refused_with: str | None = None


def _creates(path: str, mode: str = FILE, *, content: str = "canary", header: str | None = None) -> str:
    header = header or f"diff --git a/{path} b/{path}\n"
    return f"{header}new file mode {mode}\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{content}\n"


def _modifies(path: str, old: str = "canary", new: str = "changed") -> str:
    return f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{old}\n+{new}\n"


def _deletes(path: str, content: str = "canary") -> str:
    header = f"diff --git a/{path} b/{path}\ndeleted file mode 100644\n"
    return f"{header}--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-{content}\n"


def _moves(verb: str, old: str, new: str) -> str:
    return f"diff --git a/{old} b/{new}\nsimilarity index 100%\n{verb} from {old}\n{verb} to {new}\n"


def _git_binary(path: str, *blocks: str) -> str:
    header = f"diff --git a/{path} b/{path}\nnew file mode 100644\nindex 0000000..1234567\n"
    return f"{header}GIT binary patch\n{''.join(blocks)}"


def binary_block(kind: str, said: int, content: bytes) -> str:
    packed = zlib.compress(content)
    lines = [packed[start : start + 52] for start in range(0, len(packed), 52)]
    rows = [
        chr(64 + len(line) if len(line) <= 26 else 70 + len(line))
        + base64.b85encode(line.ljust(-(-len(line) // 4) * 4, b"\0")).decode()
        for line in lines
    ]
    return f"{kind} {said}\n" + "\n".join(rows) + "\n\n"


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def _blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()


UNSAFE_PATHS = {
    "parent": "../x",
    "parent inside": "folder/../../x",
    "parent at the end": "folder/..",
    "itself": "folder/./x",
    "absolute": "/etc/x",
    "git": ".git/hooks/pre-commit",
    "git itself": ".git",
    "git in a folder": "folder/.git/config",
    "git in capitals": ".GIT/config",
    "git in mixed case": "x/.gIt/config",
    "git and a space": ".git /config",
    "git and dots": ".git. ./config",
    "git's stream": ".git::$INDEX_ALLOCATION/config",
    "git's short name": "git~1/config",
    "git's short name in capitals": "GIT~1/config",
    "git and a joiner": ".g\u200cit/config",
    "git and a mark": "\ufeff.git/config",
    "parent by backslash": "folder\\..\\..\\x",
    "git by backslash": ".git\\config",
    "share": "\\\\server\\x",
    "drive": "C:/x",
}

# The content of hello.txt in the attacked repository.
HELLO = b"one\ntwo\nthree\n"
_HELLO = "diff --git a/hello.txt b/hello.txt\n--- a/hello.txt\n+++ b/hello.txt\n"
_LINKED = _creates("door", LINK, content="..") + _creates("door/beside.txt")


def hostile() -> list[Hostile]:
    return [*_unsafe(), *_unreadable(), *_lying(), *_through_links(), *_large()]


def _unsafe() -> list[Hostile]:
    def refused(name: str, diff: str) -> Hostile:
        return Hostile(name=name, diff=diff, refused_with="diff_invalid")

    created = [refused(f"creates {name}", _creates(path)) for name, path in UNSAFE_PATHS.items()]
    plainly = [refused(f"modifies {name}", _modifies(path)) for name, path in UNSAFE_PATHS.items()]
    moved = [
        refused(f"{verb}s {name}", _moves(verb, *pair))
        for name, path in UNSAFE_PATHS.items()
        for verb, pair in (("rename", ("hello.txt", path)), ("copy", (path, "hello.txt")))
    ]
    return [
        *created,
        *plainly,
        *moved,
        refused(
            "deletes git",
            _deletes(".git/HEAD", "ref: refs/heads/main"),
        ),
        refused("mode of git", "diff --git a/.git/HEAD b/.git/HEAD\nold mode 100644\nnew mode 100755\n"),
        refused("quoted parent", _creates('x"').replace('b/x"', '"b/\\056\\056/x"')),
        refused(
            "quoted nul",
            _creates("x")
            .replace("+++ b/x", '+++ "b/x\\000y"')
            .replace(" b/x", ' "b/x\\000y"')
            .replace(" a/x", ' "a/x\\000y"'),
        ),
        refused("absolute, as written", "--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-a\n+b\n"),
        refused("absolute behind the prefix", _modifies("/etc/passwd")),
        refused("parent as the prefix", "--- ../hello.txt\n+++ ../hello.txt\n@@ -1 +1 @@\n-a\n+b\n"),
        refused(
            "git after a name without prefix",
            "--- x\n+++ x\n@@ -1 +1 @@\n-a\n+b\n--- .git/config\n+++ .git/config\n@@ -1 +1 @@\n-a\n+b\n",
        ),
        refused(
            "harmless name first, then git",
            _HELLO + "@@ -1 +1 @@\n-one\n+uno\n" + _creates(".git/hooks/pre-commit", PROGRAM),
        ),
        refused(
            "other names below the git header",
            "diff --git a/hello.txt b/hello.txt\nrename from hello.txt\nrename to ../x\n",
        ),
        refused("git in the header only", _creates("x", header="diff --git a/.git/x b/.git/x\n")),
        refused("behind a broken hunk", _HELLO + "@@ -1,9 +1,9 @@\n one\n" + _creates(".git/config")),
        refused("behind a lying count", _HELLO + "@@ -1,900 +1,900 @@\n one\n" + _modifies("../beside.txt")),
        refused("inside broken binary data", _git_binary("x", "literal 5\nnonsense\n") + _creates("../x")),
        refused(
            "quoted, behind a broken hunk",
            _HELLO + "@@ -1,9 +1,9 @@\n one\n" + '--- "a/\\056git/x"\n+++ "b/\\056git/x"\n',
        ),
        refused(
            "renamed behind a broken hunk",
            _HELLO + "@@ -1,9 +1,9 @@\n one\n" + _moves("rename", "hello.txt", ".git/config"),
        ),
    ]


def _unreadable() -> list[Hostile]:
    def unreadable(name: str, diff: str, refused_with: str | None = None) -> Hostile:
        return Hostile(name=name, diff=diff, refused_with=refused_with)

    return [
        unreadable("not a diff", "please apply what we talked about\n"),
        unreadable("hunk without header", "@@ -1 +1 @@\n-one\n+uno\n"),
        unreadable("header without hunk", _HELLO),
        unreadable("truncated hunk", _HELLO + "@@ -1,3 +1,3 @@\n-one\n+uno\n"),
        unreadable("truncated line", _HELLO + "@@ -1,3 +1,3 @@\n-one\n+uno\n two\n three"),
        unreadable("huge counts", _HELLO + "@@ -1,99999999999999999999 +1,99999999999999999999 @@\n-one\n+uno\n"),
        unreadable("endless count", _HELLO + f"@@ -{'9' * 5000} +1 @@\n-one\n+uno\n"),
        unreadable("count of nothing", _HELLO + "@@ -1,0 +1,0 @@\n"),
        unreadable("nul in the content", _HELLO + "@@ -1,3 +1,3 @@\n-one\n+u\0no\n two\n three\n", "invalid_argument"),
        unreadable("nul in a name", _creates("x\0y"), "invalid_argument"),
        unreadable("half a character", _creates("x", content="\ud800"), "invalid_argument"),
        unreadable("unended quote", _creates("x").replace("b/x", '"b/x')),
    ]


def _lying() -> list[Hostile]:
    delta = _varint(len(HELLO)) + _varint(2**46) + b"\x80" * 100
    return [
        Hostile(name="more lines than said", diff=_HELLO + "@@ -1,2 +1,2 @@\n-one\n+uno\n+dos\n two\n three\n"),
        Hostile(
            name="new file with old lines", diff=_creates("x").replace("-0,0 +1", "-1 +1").replace("+canary", "-a\n+b")
        ),
        Hostile(
            name="deleted and created", diff=_creates("x").replace("--- /dev", "deleted file mode 100644\n--- /dev")
        ),
        Hostile(name="other content", diff=_modifies("hello.txt", old="never there")),
        Hostile(name="dev null without new file", diff=_creates("x").replace("new file mode 100644\n", "")),
        Hostile(
            name="names that contradict",
            diff=_moves("rename", "hello.txt", "x") + "--- a/hello.txt\n+++ b/y\n@@ -1 +1 @@\n-one\n+uno\n",
        ),
        Hostile(name="renamed from nowhere", diff=_moves("rename", "nowhere.txt", "x")),
        Hostile(name="copied from outside by a link", diff=_moves("copy", "door/beside.txt", "stolen.txt")),
        Hostile(name="bare header lends its name", diff="diff --git a/hello.txt b/hello.txt\n\n" + _creates("x")),
        Hostile(name="no such mode", diff=_creates("x", "nonsense")),
        Hostile(
            name="binary says too much",
            diff=_git_binary("x", binary_block("literal", 2_000_000_000, b"small")),
            refused_with="too_large",
        ),
        Hostile(name="binary says too little", diff=_git_binary("x", binary_block("literal", 10, b"\0" * 1_000_000))),
        Hostile(
            name="binary says impossible",
            diff=_git_binary("x", binary_block("literal", 10**17, b"small")),
            refused_with="too_large",
        ),
        Hostile(
            name="delta bomb",
            diff=_git_binary("hello.txt", binary_block("delta", len(delta), delta)).replace(
                "new file mode 100644\nindex 0000000..1234567", f"index {_blob(HELLO)}..{'2' * 40} 100644"
            ),
            refused_with="too_large",
        ),
        Hostile(
            name="binary without end", diff=_git_binary("x", binary_block("literal", 5, b"small").rstrip("\n") + "\n")
        ),
        Hostile(
            name="broken binary behind a good file",
            diff=_creates("good.txt") + _git_binary("x", "literal 5\nnonsense\n") + _creates("never.txt"),
        ),
        Hostile(
            name="binary that does not unpack behind a good file",
            diff=_creates("good.txt") + _git_binary("x", binary_block("literal", 9, b"small")) + _creates("never.txt"),
        ),
        Hostile(name="binary without data", diff=_git_binary("x")),
        Hostile(
            name="binary summary only",
            diff="diff --git a/hello.txt b/hello.txt\nindex 1111111..2222222 100644\n"
            "Binary files a/hello.txt and b/hello.txt differ\n",
        ),
    ]


def _through_links() -> list[Hostile]:
    return [
        Hostile(name="link, then a file through it", refused_with="diff_invalid", diff=_LINKED),
        Hostile(
            name="file through a link, then the link",
            diff=_creates("door/beside.txt") + _creates("door", LINK, content=".."),
        ),
        Hostile(name="through a link that is there", diff=_modifies("way-out/beside.txt")),
        Hostile(name="new file through a link that is there", diff=_creates("way-out/new.txt")),
        Hostile(name="through a link into git", diff=_creates("way-in/hooks/pre-commit", PROGRAM)),
        Hostile(
            name="deletes through a link",
            diff=_deletes("way-out/beside.txt"),
        ),
        Hostile(
            name="renames a link and writes through it",
            refused_with="diff_invalid",
            diff=_moves("rename", "way-out", "other") + _creates("other/new.txt"),
        ),
        Hostile(name="module over a file", diff=_creates("hello.txt", MODULE, content="Subproject commit " + "1" * 40)),
        Hostile(
            name="file below a module",
            refused_with="diff_invalid",
            diff=_creates("sub", MODULE, content="Subproject commit " + "1" * 40) + _creates("sub/.gitmodules"),
        ),
        Hostile(
            name="link in a strange mode",
            refused_with="diff_invalid",
            diff=_creates("door", "0120000", content="..") + _creates("door/x"),
        ),
    ]


def _large() -> list[Hostile]:
    over = 2 * 1024 * 1024
    return [
        Hostile(name="one line of a megabyte that does not fit", diff=_modifies("hello.txt", old="x" * 2**20)),
        Hostile(name="over two megabytes", diff=_creates("x", content="x" * over), refused_with="too_large"),
        Hostile(
            name="over five hundred files",
            diff="".join(_creates(f"x{n}") for n in range(501)),
            refused_with="too_large",
        ),
        Hostile(
            name="a header full of spaces", diff="diff --git a/" + " " * 10**6 + "\nold mode 100644\nnew mode 100755\n"
        ),
        Hostile(
            name="a header full of slashes",
            diff="diff --git " + "a/ " * 300_000 + "\nold mode 100644\nnew mode 100755\n",
        ),
        Hostile(
            name="a header full of quotes",
            diff="diff --git " + '"\\" ' * 250_000 + "\nold mode 100644\nnew mode 100755\n",
            refused_with="diff_invalid",
        ),
    ]
