"""The person at this machine: the same name for the broker's dashboard and for the command line."""

import getpass
import os

from gsd_review_broker.domain.text import HUMAN_PREFIX, Identity


def person_here() -> Identity:
    """The name of the account; its number if it has no name, as in some containers."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        name = str(os.getuid()) if hasattr(os, "getuid") else "user"
    return Identity(HUMAN_PREFIX + name)
