"""The programs that the pool can start as reviewers, by name.

To add one: an entry here, and a module of the same name in `pool/launch/agents` (a dash in the name is an underscore
in the module's). The command line, the settings, the tools and the doctor read this list. It is light on purpose: the
command line imports it at every start.
"""

from typing import TYPE_CHECKING, Literal

AGENTS = ("codex", "claude", "gemini", "opencode", "command")
# The user's own program, which takes any model.
OWN_COMMAND = "command"
# What can be looked for on the PATH.
PROGRAMS = tuple(name for name in AGENTS if name != OWN_COMMAND)
# The one that is used where none is named.
DEFAULT_AGENT = AGENTS[0]

if TYPE_CHECKING:
    Agent = str
else:
    # Settings and tools validate by it, and their schemas show it.
    Agent = Literal[AGENTS]
