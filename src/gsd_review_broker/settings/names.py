"""The name of the person at this machine, the same for the dashboard and for commands; and the names of agents."""

import getpass
import os
from typing import TYPE_CHECKING, Literal

from gsd_review_broker.domain.text import HUMAN_PREFIX, Identity
from gsd_review_broker.domain.words import AGENTS


def person_here() -> Identity:
    """Return the name of the account; its number if it has no name, as in some containers."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        name = str(os.getuid()) if hasattr(os, "getuid") else "user"
    return Identity(HUMAN_PREFIX + name)


if TYPE_CHECKING:
    Agent = str
else:
    # Settings and tools validate by it, and their schemas show it.
    Agent = Literal[AGENTS]
