"""The git hook. It runs at every update of a reference, so it imports next to nothing: what the broker answers is
printed, and everything else is imported when it is needed.

git calls it with `prepared` (its exit code decides), `committed` or `aborted`, and one line for each reference."""

import os
import sys

from gsd_review_broker import LOOPBACK
from gsd_review_broker.git.command import places, read_git

LOG = (
    "-c", "log.showRoot=true", "-c", "log.showSignature=false",
    "log", "-z", "--raw", "-r", "--root", "--no-abbrev", "--no-renames",
    "--no-relative", "--diff-merges=first-parent", "--ignore-submodules=none", "--no-ext-diff", "--no-textconv",
    "--no-notes", "--no-color", "--no-mailmap", "--ignore-missing", "--reverse", "--topo-order",
    "--format=%H %T %P%x00%s",
)  # fmt: skip
_BRANCHES = "refs/heads/"
ANSWER_SECONDS = 0.7
_POLICY_VARIABLES = "BROKER_GATE__"
_CONFIG_VARIABLE = "BROKER_CONFIG"
_OF_OTHERS = 0o077
_LONGEST_FILE = 10_000
_LONGEST_LIST = 1_000_000
_LONGEST_ANSWER = 10_000_000
_FAILED = 1


class RefusedError(Exception):
    """The gate cannot let it pass; the text says why and what to run."""


def main(arguments: "list[str]") -> int:
    state = arguments[0]
    if state == "landed":
        from gsd_review_broker.gate.reports import report_note

        return report_note(arguments[1])
    try:
        return _prepared(arguments[1], sys.stdin.buffer.read())
    except RefusedError as error:
        _say(str(error))
    except Exception as error:  # noqa: BLE001 - whatever goes wrong, nothing passes unseen
        _say(f"tandem gate: refused, because the hook failed: {error!r}\nRun `tandem doctor`.")
    return _FAILED


def _prepared(note: str, lines: bytes) -> int:
    """`note` is the file in which the question waits until the references are written."""
    updates = wanted_updates(lines)
    site = Site.here()
    if not updates:
        return 0
    root = site.known.get("root")
    if root and not os.path.isdir(root):
        # Its configuration is not where it was, so the default would apply.
        raise RefusedError(
            f"tandem gate: refused, because this repository is not at {root} any more.\nNext: tandem gate install"
        )
    text = configuration(site)
    globs = guarded_branches(site, text)
    updates = matching(updates, globs) if globs else updates
    body = question(site, updates, globs, plan_lines(site, text, updates)) if updates else None
    if body is None:
        return 0
    outcome, text = ask(site, "/api/gate/check", body)
    if text:
        _say(text)
    if outcome not in {"pass", "warn"}:
        return _FAILED
    keep(note, body)
    return 0


def wanted_updates(lines: bytes) -> "list[tuple[str, str]]":
    """New value and name of each local branch that changes."""
    updates: list[tuple[str, str]] = []
    for line in lines.decode("utf-8", "surrogateescape").splitlines():
        old, new, name = line.split(" ", 2)
        if name.startswith(_BRANCHES) and new.strip("0") and new != old:
            updates.append((new, name))
    return updates


def configuration(site: "Site") -> bytes:
    """Read the text of all sources of the policy; the hook parses it only if it names a setting that matters."""
    names = [name.removeprefix(_POLICY_VARIABLES).lower() for name in policy_variables()]
    text = "".join(f'"{name}"' for name in names).encode("utf-8", "surrogateescape")
    for path in (site.known.get("project_file"), site.known.get("user_file"), os.environ.get(_CONFIG_VARIABLE)):
        try:
            with open(path or os.devnull, "rb") as file:
                text += file.read()
        except FileNotFoundError:
            continue
    return text


def policy_variables() -> "list[str]":
    """List the variables of the environment that demand something of the gate."""
    return [name for name in os.environ if name.startswith(_POLICY_VARIABLES)]


def own_demands() -> "list[dict[str, object]]":
    """Read what the environment here demands of the gate. The broker has another one, so the hook sends it."""
    if not policy_variables() and not os.environ.get(_CONFIG_VARIABLE):
        return []
    from gsd_review_broker.settings.gate import demands

    return demands()


def demands_line() -> bytes:
    demands = own_demands()
    if not demands:
        return b""
    import json

    return b"demands=%b\n" % json.dumps(demands).encode("ascii")


def guarded_branches(site: "Site", text: bytes) -> "tuple[str, ...]":
    """Globs; empty for all."""
    if b'"branches"' not in text and b"\\u" not in text:
        return ()
    from gsd_review_broker.settings.gate import read_policy

    return read_policy(site.known.get("project_file"), site.known.get("user_file")).branches


def plan_lines(site: "Site", text: bytes, updates: "list[tuple[str, str]]") -> bytes:
    """Write a line for each of GSD's active plans, if code has to wait for them."""
    if not updates or (b'"plan_first"' not in text and b"\\u" not in text):
        return b""
    from gsd_review_broker.gate.question import required_plans

    return required_plans(site.known, updates[0][0])


def matching(updates: "list[tuple[str, str]]", globs: "tuple[str, ...]") -> "list[tuple[str, str]]":
    from fnmatch import fnmatchcase

    return [(new, name) for new, name in updates if any(fnmatchcase(name[len(_BRANCHES) :], glob) for glob in globs)]


class Site:
    """This repository, and the broker that serves it: by what `tandem gate install` wrote down."""

    def __init__(self, common: str, known: "dict[str, str]", tips: "list[str]") -> None:
        self.common = common
        self.known = known
        self.tips = tips

    @classmethod
    def here(cls) -> "Site":
        return cls.of(common_folder())

    @classmethod
    def of(cls, common: str) -> "Site":
        known: dict[str, str] = {}
        tips: list[str] = []
        try:
            with open(f"{common}/tandem/gate", encoding="utf-8", errors="surrogateescape") as file:
                for line in file:
                    key, _, value = line.rstrip("\n").partition("=")
                    if key == "tip":
                        tips.append(value)
                    else:
                        known[key] = value
        except OSError as error:
            raise RefusedError(
                f"tandem gate: refused, because {common}/tandem/gate cannot be read ({error.strerror}).\n"
                "Run `tandem gate install` again, or `tandem gate uninstall`."
            ) from None
        return cls(common, known, tips)

    def patience_for(self, seconds: float) -> float:
        """Longer only in our tests, which also run on machines that are busy."""
        return float(self.known.get("patience") or seconds)

    @property
    def broker_url(self) -> str:
        """Find the address of the broker on another machine that judges here; empty if it is one of this machine.

        Only the environment and the user's own file name it (settings/locations.py): the broker
        at the address gets the user's token. Raises RefusedError if the file should have it, and has not."""
        named = os.environ.get("BROKER_URL")
        if named:
            from gsd_review_broker.gate.remote import is_elsewhere

            if is_elsewhere(named):
                return named
        if not self.known.get("elsewhere"):
            return ""
        path = f"{os.path.dirname(self.known.get('user_file', ''))}/brokers"
        try:
            lines = _own_text(path, _LONGEST_LIST).split("\n")
        except OSError:
            lines = []
        repository = self.known.get("root") or self.common
        for line in lines:
            address, _, name = line.partition(" ")
            if name == repository:
                return address
        raise RefusedError(
            "tandem gate: refused, because commits here are judged by a broker on another machine, and its address for "
            f"{repository} is not in {path}.\nNext: tandem gate install --url URL"
        )

    @property
    def databases(self) -> "list[str]":
        named = os.environ.get("BROKER_DB")
        own = [os.path.abspath(named)] if named and "://" not in named else []
        return [*own, *(self.known[key] for key in ("database", "user_database") if self.known.get(key))]

    @property
    def authorization(self) -> str:
        """Write the header with the user's token, found as settings/locations.py does; empty without one."""
        token = os.environ.get("BROKER_TOKEN")
        if token is None and self.known.get("user_file"):
            try:
                token = _own_text(f"{os.path.dirname(self.known['user_file'])}/token")
            except OSError:
                return ""
        token = (token or "").strip()
        return f"Authorization: Bearer {token}\r\n" if token and token.isascii() and token.isprintable() else ""

    def head(self, asker: str) -> bytes:
        said = {"by": asker, "folder": self.common}
        said |= {key: self.known.get(key, "") for key in ("root", "commit")}
        lines = "".join(f"{key}={value}\n" for key, value in said.items()).encode("utf-8", "surrogateescape")
        return lines + demands_line()


def git_folder() -> str:
    """Find this worktree's git folder without starting git."""
    folder = os.environ.get("GIT_DIR") or ".git"
    if os.path.isfile(folder):
        with open(folder, encoding="utf-8", errors="surrogateescape") as file:
            return os.path.join(os.path.dirname(folder), file.read().strip().removeprefix("gitdir: "))
    return folder if os.path.isdir(folder) else "."


def common_folder() -> str:
    """Find the git folder that all worktrees share."""
    folder = git_folder()
    try:
        with open(f"{folder}/commondir", encoding="utf-8", errors="surrogateescape") as file:
            folder = os.path.join(folder, file.read().strip())
    except OSError:
        pass
    return os.path.realpath(folder)


def question(site: Site, updates: "list[tuple[str, str]]", globs: "tuple[str, ...]", plans: bytes) -> "bytes | None":
    """Ask about all commits that the guarded branches would gain; None if there are none."""
    # In state `prepared` the references still have their old values.
    news = [new for new, _ in updates]
    log = commits_log([*news, "--not", *guarded_globs(globs), "--remotes", *site.tips])
    if not log:
        return None
    import time

    names = "".join(f"branch={name}\n" for _, name in updates).encode("utf-8", "surrogateescape")
    return site.head("hook") + b"at=%d\n" % (time.time() * 1000) + names + plans + clean_merges(log) + b"\n" + log


def commits_log(revisions: "list[str]") -> bytes:
    # git runs this hook, so it has decided that the repository is safe; with its folder named, it does not ask again.
    here = {"GIT_DIR": git_folder()} | places()
    output = read_git([*LOG, *revisions, "--"], here)
    if output is None:
        raise RefusedError("tandem gate: refused, because git log failed here. Run `git fsck`.")
    return output


def guarded_globs(globs: "tuple[str, ...]") -> "list[str]":
    """Name the guarded branches as `git log` takes them."""
    return [f"--glob=refs/heads/{_bracketed(glob)}" for glob in globs] or ["--branches"]


def _bracketed(glob: str) -> str:
    """git adds `/*` to a name without wildcards; with its last letter in brackets it stays as it is."""
    return glob if any(sign in glob for sign in "*?[") else f"{glob[:-1]}[{glob[-1:]}]"


def clean_merges(log: bytes, environment: "dict[str, str] | None" = None) -> bytes:
    """Write a line for each merge that is git's own; merges are rare, and so is this import. `environment` says where
    the objects are; a hook's own is the default."""
    if not any(field.count(b" ") > 2 and not field.startswith((b":", b"\n:")) for field in log.split(b"\0")):  # noqa: PLR2004 - a commit, its tree and more than one parent
        return b""
    from gsd_review_broker.gate.question import clean

    return b"".join(
        b"clean=%b\n" % commit.encode() for commit in clean(log, places() if environment is None else environment)
    )


def ask(site: Site, path: str, body: bytes) -> "tuple[str, str]":
    """Ask the running broker, or without one the database file and receipts; or only a broker on another machine."""
    url = site.broker_url
    if url:
        from gsd_review_broker.gate.remote import ask_remote

        return ask_remote(site, url, path, body)
    for database in site.databases:
        address = address_of(database)
        if address is None:
            continue
        try:
            status, answer = post(address, path, body, site.authorization, site.patience_for(ANSWER_SECONDS))
        except OSError as error:
            problem = f"the broker does not answer ({error})"
            break
        if status == 200:  # noqa: PLR2004 - HTTP's OK
            outcome, _, text = answer.decode("utf-8", "replace").partition("\n")
            return outcome, text
        problem = f"the broker answers {status}: {answer.decode('utf-8', 'replace')[:500]}"
        break
    else:
        problem = "no broker is running for this repository"
    from gsd_review_broker.gate.database_file import answer_from_file

    return answer_from_file(site, body, problem)


def address_of(database: str) -> "tuple[str, int] | None":
    """Read the runtime file beside the database, without a JSON parser.

    A repository may bring such a file. The hook believes it as every client does: if only its owner can read it, if the
    address is one of this machine, and if the process that it names holds the database's lock."""
    try:
        text = _own_text(f"{database}.runtime.json")
        holder = _holder(f"{database}.lock") if text else ""
    except OSError:
        return None
    _, found, rest = text.partition('"url": "http://')
    host, colon, port = rest.partition('"')[0].rpartition(":")
    host = host.strip("[]")
    if not found or not colon or not port.isdigit() or host not in LOOPBACK:
        return None
    return (host, int(port)) if holder and holder == _pid_in(text) else None


def _own_text(path: str, longest: int = _LONGEST_FILE) -> str:
    """Read a plain file that no other user can read or write; any other is empty."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        facts = os.fstat(file.fileno())
        is_own = facts.st_uid == os.geteuid() and not facts.st_mode & _OF_OTHERS
        return file.read(longest).decode("utf-8", "surrogateescape") if is_own else ""


def _holder(path: str) -> str:
    """Name the process that holds a lock, by what it wrote; empty if the lock is free."""
    import fcntl

    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        try:
            # Shared, so that two hooks do not take each other for a broker.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _pid_in(file.read(_LONGEST_FILE).decode("utf-8", "replace"))
    return ""


def _pid_in(text: str) -> str:
    digits = text.partition('"pid": ')[2]
    return digits[: len(digits) - len(digits.lstrip("0123456789"))]


def post(
    address: "tuple[str, int]", path: str, body: bytes, authorization: str = "", patience: float = ANSWER_SECONDS
) -> "tuple[int, bytes]":
    """Make one request; by default within the time that a refusal may take. Raises OSError."""
    import _socket  # `socket` costs more than the whole request
    import time

    host, port = address
    end = time.monotonic() + patience
    name = f"[{host}]" if ":" in host else host
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {name}:{port}\r\nContent-Type: application/x-tandem-gate\r\n"
        f"Accept: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{authorization}\r\n"
    )
    family = _socket.AF_INET6 if ":" in host else _socket.AF_INET
    connection = _socket.socket(family, _socket.SOCK_STREAM)
    try:
        connection.settimeout(patience)
        connection.connect((host, port))
        connection.settimeout(max(0.001, end - time.monotonic()))
        connection.sendall(head.encode() + body)
        connection.settimeout(max(0.001, end - time.monotonic()))
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
            left = end - time.monotonic()
            # A broker that never stops sending is as bad as a silent one.
            if left <= 0 or len(answer) > _LONGEST_ANSWER:
                raise OSError("its answer does not end")
            connection.settimeout(left)
    finally:
        connection.close()
    return _parsed(answer)


def _parsed(answer: bytes) -> "tuple[int, bytes]":
    head, separator, content = answer.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if not separator or len(words) < 2 or not words[1].isdigit():  # noqa: PLR2004 - version and status
        raise OSError("it does not speak HTTP")
    return int(words[1]), content


def keep(note: str, body: bytes) -> None:
    try:
        with open(os.open(note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(body)
    except OSError:
        # Without it the commit is linked to its review only when a person runs `tandem gate status`.
        return


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
