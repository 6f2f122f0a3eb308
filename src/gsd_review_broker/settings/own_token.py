"""The token of whoever runs a command: BROKER_TOKEN, else the file `token` in the user's configuration folder. Light:
every command imports it."""

import os
from collections.abc import Mapping
from pathlib import Path

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.files.private import UnfitFileError, is_private, read_with_status
from gsd_review_broker.settings.locations import user_file

VARIABLE = "BROKER_TOKEN"
_LONGEST = 1_000


def token_file() -> Path:
    return user_file().with_name("token")


def own_token(environment: Mapping[str, str] | None = None, *, path: Path | None = None) -> str | None:
    """None without one. A file that others can read is refused: its token is not a secret any more. `path` is the file
    if it is not the usual one."""
    environment = os.environ if environment is None else environment
    if VARIABLE in environment:
        return _required_form(environment[VARIABLE].strip(), f"the variable {VARIABLE}")
    path = path or token_file()
    try:
        content, status = read_with_status(path, largest=_LONGEST, follow_links=True)
    except FileNotFoundError:
        return None
    except (UnfitFileError, OSError) as error:
        raise BrokerError(Code.UNAVAILABLE, f"the token in {path} cannot be read: {error}", "Fix the file.") from error
    if not is_private(status):
        raise BrokerError(
            Code.FORBIDDEN,
            f"{path} can be read or changed by others",
            f"Run `chmod 600 {path}`; if others may have read it, revoke the token and make another.",
        )
    return _required_form(content.decode("utf-8", "replace").strip(), str(path))


def _required_form(token: str, place: str) -> str | None:
    if not (token.isascii() and token.isprintable()):
        raise BrokerError(Code.INVALID_ARGUMENT, f"{place} does not hold a token", "It holds one line: tdm_…")
    return token or None
