"""Which clients know the broker, and does what they know lead to the right one? Whoever answers there decides."""

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gsd_review_broker.cli.doctor.check import Check, green, yellow
from gsd_review_broker.client import Target
from gsd_review_broker.client.discovery import answering

if TYPE_CHECKING:
    from gsd_review_broker.integrations import ClientStatus, ConfigFile


def clients(target: Target) -> Iterator[Check]:
    from gsd_review_broker import integrations

    around = integrations.Environment.of(Path.cwd())
    statuses = integrations.status(around, versions=False)
    is_connected = any(place.url for status in statuses for place in status.places)
    for status in statuses:
        check = _check(status, target, is_enough=is_connected)
        if check is not None:
            yield check


def _check(status: "ClientStatus", target: Target, *, is_enough: bool) -> Check | None:
    """`is_enough`: some client is connected, so that another one need not be."""
    name = status.client.name
    unreadable = next((place for place in status.places if place.problem), None)
    if unreadable is not None:
        return yellow(name, f"{unreadable.path}: {unreadable.problem}", "Fix the file.")
    connected = [place for place in status.places if place.url]
    if not connected:
        return _unconnected(name, is_enough=is_enough) if status.program else None
    if status.program is None:
        found = f"connected, but not installed: there is no {name} on the PATH"
        return yellow(name, found, f"Install {status.client.full_name}, or run tandem uninstall {name}.")
    wrong = next(filter(None, (_what_is_wrong(place, target) for place in connected)), None)
    if wrong is not None:
        return yellow(name, wrong, f"tandem install {name} connects it to the broker of this folder.")
    return green(name, f"connected: {', '.join(place.url or '' for place in connected)}")


def _unconnected(name: str, *, is_enough: bool) -> Check:
    if is_enough:
        return green(name, f"not connected (tandem install {name} connects it)")
    return yellow(name, "installed, but not connected", f"tandem install {name}")


def _what_is_wrong(place: "ConfigFile", target: Target) -> str | None:
    """None if the entry leads to the broker of this folder, or will start it."""
    address = place.url or ""
    if not address.startswith(("http://", "https://")):
        program = shlex.split(address)[0]
        return None if shutil.which(program) else f"{place.path} names {program}, which is not on the PATH"
    broker = answering(address)
    if broker is None:
        # Another machine may answer only to that machine's clients.
        return f"no broker answers at {address}" if address.startswith("http://") else None
    accepted = {target.locations.serves} if place.scope.value == "project" else {target.locations.serves, "user"}
    return None if broker.serves in accepted else f"connected to {address}, which serves {broker.serves}"
