"""The gate's question to a broker on another machine.

That broker alone decides. Nothing on this machine stands in for it while it does not answer: neither a database nor a
ticket nor a receipt here is the team's. Imported only where such a broker is named, because TLS costs more to import
than the rest of the hook.
"""

import _thread
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from gsd_review_broker.client.connection import Connection, UnreachableError, is_here
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.files.private import write_private
from gsd_review_broker.gate.hook import Site, own_demands
from gsd_review_broker.settings.user_files import own_token

# A name service, TLS and a question over a slow line take longer than a question on this machine.
ANSWER_SECONDS = 3.0
_MARGIN_SECONDS = 5.0
_HEADERS = {"Content-Type": "application/x-tandem-gate", "Accept": "application/json"}
_OK = 200
# The first line of a question: the caller's paths are those of another machine.
ELSEWHERE = b"elsewhere=yes\n"
# From the least to the most strict, as in domain/gate/policy.py, which takes longer to import than a question may.
_MODES = ("off", "warn", "block")
# The mode in which the broker answered last.
_MODE_FILE = "mode"
_CHECK_ADDRESS = "check that the broker is up and that its address is right (`tandem status`), then commit again."


def is_elsewhere(url: str) -> bool:
    return bool(url) and not is_here(url)


def ask_elsewhere(site: Site, url: str, path: str, body: bytes) -> tuple[str, str]:
    """`pass`, `warn` or `refuse`, and the words."""
    try:
        content = _asked(site, url, path, body)
        outcome, text = str(content["outcome"]), str(content["message"])
        remember_mode(site, content["mode"])
    except BrokerError as error:
        return _unanswered(site, error.message, _next_step(error))
    except (ValueError, KeyError, TypeError):
        return _unanswered(site, f"what answers at {url} is not a broker", _CHECK_ADDRESS)
    return outcome, text


def _next_step(error: BrokerError) -> str:
    if error.code is Code.UNAUTHENTICATED:
        return (
            "put a token that is valid into BROKER_TOKEN, or into the file `token` in your configuration folder (mode "
            "0600); whoever runs the broker makes one with `tandem token new`. Then commit again."
        )
    is_about_address = isinstance(error, UnreachableError) or error.code is Code.INVALID_ARGUMENT
    return _CHECK_ADDRESS if is_about_address or not error.hint else error.hint


def _asked(site: Site, url: str, path: str, body: bytes) -> Any:
    own = _own_mode(site)
    line = b"mode=%b\n" % own.encode("ascii") if own else b""
    status, answer = send(site, url, path, line + body, site.patience_for(ANSWER_SECONDS))
    try:
        content = json.loads(answer)
    except ValueError:
        raise UnreachableError(f"what answers at {url} is not a broker: {_shown(status, answer)}") from None
    if status == _OK:
        return content
    refused = content["error"]
    raise BrokerError(Code(refused["code"]), f"the broker at {url} says: {refused['message']}", str(refused["hint"]))


def _own_mode(site: Site) -> str:
    """What the files and the environment here demand; nothing where none says anything. Configuration that cannot be
    read blocks."""
    modes = [str(section.get("mode", _MODES[-1])) for section in own_demands() if {"mode", "problem"} & section.keys()]
    for key in ("user_file", "project_file"):
        try:
            with open(site.known.get(key) or os.devnull, "rb") as file:  # noqa: PTH123 - as the hook
                section = (json.loads(file.read() or b"{}")).get("gate", {})
            if "mode" in section:
                modes.append(section["mode"])
        except FileNotFoundError:
            continue
        except (OSError, ValueError, AttributeError, TypeError, RecursionError):
            return _MODES[-1]
    return _strictest(modes)


def _strictest(modes: list[str]) -> str:
    """Nothing where there are none; what is not a mode counts as the strictest."""
    known = [_MODES.index(mode) if mode in _MODES else len(_MODES) - 1 for mode in modes]
    return _MODES[max(known)] if known else ""


def _shown(status: int, answer: bytes) -> str:
    text = answer[:200].decode("utf-8", "replace")
    return f"status {status}, {''.join(sign if sign.isprintable() else ' ' for sign in text).strip()}"


def send(site: Site, url: str, path: str, body: bytes, patience: float) -> tuple[int, bytes]:
    """The whole exchange within `patience`, a slow name service included. Raises BrokerError."""
    outcome: list[tuple[int, bytes] | Exception] = []
    done = _thread.allocate_lock()
    done.acquire()

    def exchange() -> None:
        try:
            # Longer than this call waits, so that the time-out is told in one way.
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
        from gsd_review_broker.git.origin import root_commit  # noqa: PLC0415 - it starts processes

        body = body.replace(b"\ncommit=\n", b"\ncommit=%b\n" % (root_commit(site.common) or "").encode("ascii"), 1)
    return ELSEWHERE + body


def _unanswered(site: Site, problem: str, hint: str) -> tuple[str, str]:
    """Refused as strictly as the broker was when it answered last, or as the files here say."""
    mode = _strictest([*filter(None, [_own_mode(site)]), *_remembered(site)])
    if mode == "off":
        return "pass", ""
    verb = "warning (the commit is let through)" if mode == "warn" else "refused"
    text = (
        f"tandem gate: {verb}: the broker that judges commits here could not be asked.\n"
        f"  {problem}\n"
        "It runs on another machine, and nothing on this one can answer for it.\n"
        f"Next: {hint}"
    )
    return "warn" if mode == "warn" else "refuse", text


def remember_mode(site: Site, mode: str) -> None:
    if mode in _MODES and _remembered(site) != [mode]:
        with suppress(OSError):
            write_private(Path(site.common, "tandem", _MODE_FILE), mode.encode("ascii"))


def _remembered(site: Site) -> list[str]:
    try:
        with open(os.path.join(site.common, "tandem", _MODE_FILE), encoding="ascii") as file:  # noqa: PTH118, PTH123 - as the hook
            return [file.read(16).strip()]
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        # Somebody wrote something else there.
        return [_MODES[-1]]
