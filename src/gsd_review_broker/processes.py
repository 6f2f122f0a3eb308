"""One process of this machine, identified by its number and its start time, because numbers are reused."""

import contextlib
import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from signal import Signals

_PROC = Path("/proc")
_START = 19
_ENDED = {"Z", "X"}


def start_of(pid: int) -> str | None:
    """Return when the process began; None if there is none. The value is only good for comparison."""
    if sys.platform == "linux":
        fields = stat_fields(pid)
        return start_in(fields) if fields else None
    if sys.platform == "win32":
        return None
    import subprocess  # noqa: PLC0415 - short commands do without it

    result = subprocess.run(["/bin/ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return result.stdout.strip() or None


def is_alive(pid: int) -> bool:
    if sys.platform == "win32":
        import subprocess  # noqa: PLC0415 - see above

        listed = subprocess.run(["tasklist", "/FI", f"PID eq {pid}"], capture_output=True, text=True, check=False)
        return str(pid) in listed.stdout
    with contextlib.suppress(OSError):
        # If this process started it, it has to be reaped.
        os.waitpid(pid, os.WNOHANG)
    if fields := stat_fields(pid):
        # A zombie: in containers PID 1 may never reap it.
        return fields[0].decode() not in _ENDED
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def send_signal(pid: int, start: str | None, kind: "Signals") -> bool:
    """Signal exactly this process, or none: False if it is gone or the number belongs to another one by now."""
    if pid <= 1:
        return False
    try:
        descriptor = os.pidfd_open(pid) if sys.platform == "linux" else None
    except ProcessLookupError:
        return False
    except OSError:
        # An old kernel, or one that only resembles Linux.
        descriptor = None
    try:
        if start_of(pid) != start:
            return False
        if descriptor is not None and sys.platform == "linux":
            from signal import pidfd_send_signal  # noqa: PLC0415 - see above

            pidfd_send_signal(descriptor, kind)
        else:
            os.kill(pid, kind)
    except ProcessLookupError:
        return False
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return True


def stat_fields(pid: int) -> list[bytes]:
    """Read the fields of /proc about a process, from its state on; empty if there are none.

    A program's name may contain anything, even parentheses and spaces, so the text is split from the right.
    """
    try:
        return (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def start_in(fields: list[bytes]) -> str:
    return f"{_boot()}:{fields[_START].decode()}"


@cache
def _boot() -> str:
    """Identify the boot that the times refer to."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
