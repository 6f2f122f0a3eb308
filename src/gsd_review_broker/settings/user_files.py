"""The user's own files: the token of a command, and the brokers on other machines.

Light: every command imports it. The git hook reads the same files by itself.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.files import UnfitFileError, is_private, make_private_folder, read_with_status, write_private
from gsd_review_broker.settings.locations import user_file

_VARIABLE = "BROKER_TOKEN"
_LONGEST = 1_000
# One line for each repository that a broker on another machine judges: the address, a space, and the repository's root
# (of a bare one the git folder). It is the user's own file, because the broker at the address gets the user's token.
_BROKERS = "brokers"


def token_file() -> Path:
    return user_file().with_name("token")


def own_token(environment: Mapping[str, str] | None = None, *, path: Path | None = None) -> str | None:
    """None without one. A file that others can read is refused: its token is not a secret any more. `path` is the file
    if it is not the usual one."""
    environment = os.environ if environment is None else environment
    if _VARIABLE in environment:
        return _required_form(environment[_VARIABLE].strip(), f"the variable {_VARIABLE}")
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


def brokers_file() -> Path:
    return user_file().with_name(_BROKERS)


def recorded_url(repository: str) -> str | None:
    """None if the repository has no broker on another machine. Raises BrokerError if the file cannot be trusted."""
    return _addresses(brokers_file()).get(repository)


def record_url(repository: str, url: str | None) -> None:
    """None takes the repository out."""
    path = brokers_file()
    addresses = _addresses(path)
    if addresses.get(repository) == url:
        return
    if "\n" in repository or (url is not None and not (url.isascii() and url.isprintable() and " " not in url)):
        raise BrokerError(Code.INVALID_ARGUMENT, f"{url!r} for {repository!r} cannot be written down", "Use another.")
    addresses.pop(repository, None)
    if url is not None:
        addresses[repository] = url
    make_private_folder(path.parent)
    if not addresses:
        path.unlink(missing_ok=True)
        return
    text = "".join(f"{address} {name}\n" for name, address in addresses.items())
    write_private(path, text.encode("utf-8", "surrogateescape"))


def _addresses(path: Path) -> dict[str, str]:
    try:
        content, status = read_with_status(path)
    except FileNotFoundError:
        return {}
    except (UnfitFileError, OSError) as error:
        raise BrokerError(Code.UNAVAILABLE, f"{path} cannot be read: {error}", "Fix the file.") from error
    if not is_private(status):
        raise BrokerError(
            Code.FORBIDDEN, f"{path} can be read or changed by others", f"Look at it, then run `chmod 600 {path}`."
        )
    lines = content.decode("utf-8", "surrogateescape").split("\n")
    pairs = (line.partition(" ") for line in lines)
    return {name: address for address, _, name in pairs if name}
