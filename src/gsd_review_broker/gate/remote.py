"""The gate's question to a broker on another machine.

That broker alone decides. Nothing on this machine stands in for it while it does not answer: neither a database nor a
ticket nor a receipt here is the team's. Imported only where such a broker is named, because TLS costs more to import
than the rest of the hook; and the policy only where there is configuration, or no answer.
"""

import _thread
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gsd_review_broker.client.connection import Connection, UnreachableError, is_here
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.files import write_private
from gsd_review_broker.gate.hook import Site, configuration, own_demands
from gsd_review_broker.settings.locations import own_token

if TYPE_CHECKING:
    from gsd_review_broker.domain.gate.policy import Mode

# A name service, TLS and a question over a slow line take longer than a question on this machine.
ANSWER_SECONDS = 3.0
_MARGIN_SECONDS = 5.0
_HEADERS = {"Content-Type": "application/x-tandem-gate", "Accept": "application/json"}
_OK = 200
# The first line of a question: the caller's paths are those of another machine.
ELSEWHERE = b"elsewhere=yes\n"
# The mode in which the broker answered last.
_MODE_FILE = "mode"
_CHECK_ADDRESS = "check that the broker is up and that its address is right (`tandem status`), then commit again."


def is_elsewhere(url: str) -> bool:
    return bool(url) and not is_here(url)


def ask_remote(site: Site, url: str, path: str, body: bytes) -> tuple[str, str]:
    """Give `pass`, `warn` or `refuse`, and the words."""
    try:
        content = _asked(site, url, path, body)
        outcome, text = str(content["outcome"]), str(content["message"])
        remember_mode(site, str(content["mode"]))
    except BrokerError as error:
        return _unanswered(site, error.message, _next_step(error))
    except (ValueError, KeyError, TypeError):
        return _unanswered(site, f"what answers at {url} is not a broker", _CHECK_ADDRESS)
    return outcome, text


def _next_step(error: BrokerError) -> str:
    if error.code is Code.UNAUTHENTICATED:
        return (
            "put a token that is valid into BROKER_TOKEN, or into the file `token` in your configuration folder (mode "
            "0600); its administrator makes one with `tandem token new`. Then commit again."
        )
    is_about_address = isinstance(error, UnreachableError) or error.code is Code.INVALID_ARGUMENT
    return _CHECK_ADDRESS if is_about_address or not error.hint else error.hint


def _asked(site: Site, url: str, path: str, body: bytes) -> Any:
    own = _own_mode(site)
    line = b"mode=%b\n" % own.encode("ascii") if own is not None else b""
    status, answer = send(site, url, path, line + body, site.patience_for(ANSWER_SECONDS))
    try:
        content = json.loads(answer)
    except ValueError:
        raise UnreachableError(f"what answers at {url} is not a broker: {_shown(status, answer)}") from None
    if status == _OK:
        return content
    refused = content["error"]
    raise BrokerError(Code(refused["code"]), f"the broker at {url} says: {refused['message']}", str(refused["hint"]))


def _own_mode(site: Site) -> "Mode | None":
    """Read the mode that the files here name; None if they name none. Configuration that cannot be read blocks."""
    with suppress(OSError):
        if not configuration(site):
            return None
    from gsd_review_broker.settings.gate import read_policy

    policy = read_policy(site.known.get("project_file"), site.known.get("user_file"))
    return policy.mode if policy.names_mode else None


def _shown(status: int, answer: bytes) -> str:
    text = answer[:200].decode("utf-8", "replace")
    return f"status {status}, {''.join(sign if sign.isprintable() else ' ' for sign in text).strip()}"


def send(site: Site, url: str, path: str, body: bytes, patience: float) -> tuple[int, bytes]:
    """Make the whole exchange within `patience`, a slow name service included. Raises BrokerError."""
    outcome: list[tuple[int, bytes] | Exception] = []
    done = _thread.allocate_lock()
    done.acquire()

    def exchange() -> None:
        try:
            # Longer than this call waits, so that there is one message about a time-out.
            outcome.append(_exchanged(site, url, path, body, patience + _MARGIN_SECONDS))
        except Exception as error:  # noqa: BLE001 - the caller raises it again
            outcome.append(error)
        finally:
            done.release()

    # Nothing can interrupt a name service. This does not wait for it, and the process ends without it.
    _thread.start_new_thread(exchange, ())
    if not done.acquire(timeout=patience):
        raise UnreachableError(f"the broker at {url} does not answer within {patience:g} s")
    (result,) = outcome
    if isinstance(result, Exception):
        raise result
    return result


def _exchanged(site: Site, url: str, path: str, body: bytes, patience: float) -> tuple[int, bytes]:
    user_file = site.known.get("user_file")
    token = own_token(path=Path(user_file).with_name("token") if user_file else None)
    connection = Connection(url, token=token)
    try:
        status, _, answer = connection.exchange("POST", path, _for_elsewhere(site, body), _HEADERS, patience=patience)
    finally:
        connection.close()
    return status, answer


def _for_elsewhere(site: Site, body: bytes) -> bytes:
    """Paths here mean nothing to that broker; it compares the root commit, which all clones share."""
    if not site.known.get("commit"):
        # There was none when the gate was installed.
        from gsd_review_broker.git.discovery import root_commit

        body = body.replace(b"\ncommit=\n", b"\ncommit=%b\n" % (root_commit(site.common) or "").encode("ascii"), 1)
    return ELSEWHERE + body


def _unanswered(site: Site, problem: str, hint: str) -> tuple[str, str]:
    """Refuse as strictly as the broker did when it answered last, or as the files here say. The environment can only
    make that stricter: it does not stand in for an answer, or for a file."""
    from gsd_review_broker.domain.gate.policy import Mode, strictest

    modes = [mode for mode in (_own_mode(site), _remembered(site)) if mode is not None]
    demanded = [Mode(section["mode"]) for section in own_demands() if section.get("mode") in list(Mode)]
    mode = strictest([*modes, *demanded]) if modes else Mode.BLOCK
    if mode is Mode.OFF:
        return "pass", ""
    verb = "warning (the commit is let through)" if mode is Mode.WARN else "refused"
    text = (
        f"tandem gate: {verb}: the broker that judges commits here could not be asked.\n"
        f"  {problem}\n"
        "It runs on another machine, and nothing on this one can answer for it.\n"
        f"Next: {hint}"
    )
    return "warn" if mode is Mode.WARN else "refuse", text


def remember_mode(site: Site, mode: str) -> None:
    if mode.isalpha() and _text_of_mode(site) != mode:
        with suppress(OSError):
            write_private(Path(site.common, "tandem", _MODE_FILE), mode.encode("ascii"))


def _remembered(site: Site) -> "Mode | None":
    """Read the mode in which the broker answered last; an unknown word is the strictest."""
    from gsd_review_broker.domain.gate.policy import Mode

    text = _text_of_mode(site)
    return None if text is None else Mode(text) if text in set(Mode) else Mode.BLOCK


def _text_of_mode(site: Site) -> str | None:
    try:
        with open(os.path.join(site.common, "tandem", _MODE_FILE), encoding="ascii", errors="replace") as file:
            return file.read(16).strip()
    except FileNotFoundError:
        return None
    except OSError:
        return "unreadable"
