"""Which repositories are judged by a broker on another machine: the file `brokers` in the user's configuration folder.

`tandem gate install --url URL` writes it. It is the user's own file and not one in the repository, because whoever
chooses the address gets the user's token. One line for each repository: the address, a space, and the repository's root
(for a bare repository its git folder). Light: every command imports it. The git hook reads the same lines by itself.
"""

from pathlib import Path

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.files.private import (
    UnfitFileError,
    is_private,
    make_private_folder,
    read_with_status,
    write_private,
)
from gsd_review_broker.settings.locations import user_file

NAME = "brokers"


def brokers_file() -> Path:
    return user_file().with_name(NAME)


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
