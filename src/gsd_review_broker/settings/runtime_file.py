"""How clients find the broker, and how they know that it is ours.

A small file beside the database names the broker's address while it runs. A cloned repository may bring such a file,
and another user may listen on a port that a broker left. So clients believe the file only while a process holds the
database's lock; and the process at the address has to prove that it knows the file's secret before it is sent anything.
"""

import hashlib
import hmac
import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from gsd_review_broker import LOOPBACK, __version__
from gsd_review_broker.files import UnfitFileError, is_private, lock_owner, read_with_status, write_private
from gsd_review_broker.processes import start_of
from gsd_review_broker.settings.state_files import Database, lock_path, runtime_path

_SECRET_BYTES = 32
_SHORTEST_SECRET = 2 * _SECRET_BYTES
_CHALLENGE = re.compile(r"[0-9a-f]{32,128}")
_PURPOSE = "gsd-review-broker health"
_KEEPING = "gsd-review-broker keeper"


class UntrustedRuntimeFileError(Exception):
    """There is a runtime file, but it is not one of our brokers'. The message says why."""


class Announcement(NamedTuple):
    """What a running broker wrote about itself."""

    url: str
    pid: int
    process_start: str | None
    version: str
    serves: str
    database: str
    started_at: str
    secret: str

    def is_proven_by(self, proof: object, challenge: str) -> bool:
        """Tell in constant time whether the sender of this proof is this process, and knows the secret."""
        if not isinstance(proof, str) or not proof.isascii():
            return False
        return hmac.compare_digest(proof, proof_of(self.secret, challenge, self.pid))


def new_challenge() -> str:
    return os.urandom(_SECRET_BYTES).hex()


def is_challenge(text: str) -> bool:
    return _CHALLENGE.fullmatch(text) is not None


def proof_of(secret: str, challenge: str, pid: int) -> str:
    """Return the answer to this challenge that only a broker with this secret can give."""
    message = f"{_PURPOSE}\n{challenge}\n{pid}"
    return hmac.new(secret.encode(), message.encode(), hashlib.sha256).hexdigest()


def keeper_token(secret: str) -> str:
    """Return the bearer token of users who can read the runtime file, and so could open the database too."""
    return hmac.new(secret.encode(), _KEEPING.encode(), hashlib.sha256).hexdigest()


class RuntimeFile:
    def __init__(self, database: Database, *, url: str, serves: str, started_at: str, secret: str) -> None:
        self._path = runtime_path(database)
        self.url = url
        self.serves = serves
        self._content: dict[str, Any] = {
            "url": url,
            "mcp": f"{url}/mcp",
            "pid": os.getpid(),
            "process_start": start_of(os.getpid()),
            "version": __version__,
            "serves": serves,
            "database": str(database),
            "started_at": started_at,
            "secret": secret,
        }

    def write(self) -> None:
        write_private(self._path, json.dumps(self._content).encode())

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


def new_secret() -> str:
    return os.urandom(_SECRET_BYTES).hex()


def announced(database: Database) -> Announcement | None:
    """Return what the broker on this database announced; None if none is running."""
    path = runtime_path(database)
    try:
        content, status = read_with_status(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnfitFileError as error:
        raise UntrustedRuntimeFileError(str(error)) from error
    except OSError as error:
        raise UntrustedRuntimeFileError(f"{path} cannot be read: {error.strerror}") from error
    owner = lock_owner(lock_path(database))
    if owner is None:
        # Left by a broker that was killed, or it came with the repository.
        return None
    if not is_private(status):
        raise UntrustedRuntimeFileError(f"{path} can be read or changed by others, so no broker of yours wrote it")
    announcement = _parsed(path, content)
    if announcement.pid != owner:
        raise UntrustedRuntimeFileError(f"{path} names pid {announcement.pid}, and the database is held by pid {owner}")
    return announcement


def _parsed(path: Path, content: bytes) -> Announcement:
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UntrustedRuntimeFileError(f"{path} is not JSON") from error
    fields = cast("dict[str, Any]", values) if isinstance(values, dict) else {}
    url, pid, secret = fields.get("url"), fields.get("pid"), fields.get("secret")
    if not isinstance(url, str) or not _is_loopback(url):
        raise UntrustedRuntimeFileError(f"{path} does not name an address of this machine")
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 1:
        raise UntrustedRuntimeFileError(f"{path} does not name a process")
    if not isinstance(secret, str) or len(secret) < _SHORTEST_SECRET:
        raise UntrustedRuntimeFileError(f"{path} has no secret; an older version may have written it")
    start = fields.get("process_start")
    texts = {name: str(fields.get(name, "")) for name in ("version", "serves", "database", "started_at")}
    return Announcement(
        url=url, pid=pid, secret=secret, process_start=start if isinstance(start, str) else None, **texts
    )


def _is_loopback(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and parts.hostname in LOOPBACK and bool(parts.port) and parts.username is None
    except ValueError:
        return False
