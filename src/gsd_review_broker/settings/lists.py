"""Lists of names, addresses and folders in the settings. A value that could never match is refused at the start:
otherwise a door stays shut, or a header is not believed, and nobody knows why."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

_HOST = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?", re.ASCII)


def _filled(values: list[str]) -> list[str]:
    """A variable of the environment may be empty."""
    return [value.strip() for value in values if value.strip()]


def _host_names(names: list[str]) -> list[str]:
    names = _filled(names)
    for name in names:
        if not _HOST.fullmatch(name):
            raise ValueError(f"{name!r} is not a name such as reviews.example.org or reviews.example.org:8443")
    return names


def _addresses(addresses: list[str]) -> list[str]:
    addresses = _filled(addresses)
    for address in addresses:
        try:
            ipaddress.ip_network(address)
        except ValueError:
            raise ValueError(f"{address!r} is not an address or a network such as 10.0.0.5 or 10.0.0.0/24") from None
    return addresses


def _absolute_folders(folders: list[str]) -> list[str]:
    folders = _filled(folders)
    for folder in folders:
        if not Path(folder).is_absolute() and not folder.startswith("~"):
            raise ValueError(f"{folder!r} is not a whole path; where the broker was started must not matter")
    return folders


HostNames = Annotated[list[str], AfterValidator(_host_names)]
Addresses = Annotated[list[str], AfterValidator(_addresses)]
AbsoluteFolders = Annotated[list[str], AfterValidator(_absolute_folders)]
