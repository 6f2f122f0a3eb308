"""The programs that the pool can start as reviewers, by name, each with its models.

To add one: an entry here, and a module of the same name in `pool/launch/agents` (a dash in the name is an underscore
in the module's). The command line, the settings, the tools and the doctor read this list. It is light on purpose: the
command line imports it at every start.
"""

from typing import TYPE_CHECKING, Literal

# The first agent, and the first model of each, is the one that is used where none is named.
MODELS: dict[str, tuple[str, ...]] = {
    "codex": (
        *("gpt-5.3-codex", "gpt-5.3-codex-spark", "gpt-5.2-codex", "gpt-5.1-codex-max", "gpt-5.1-codex"),
        *("gpt-5.1-codex-mini", "gpt-5-codex", "gpt-5.3", "gpt-5.2", "gpt-5.1", "gpt-5"),
    ),
    "claude": (
        *("sonnet", "opus", "haiku", "claude-opus-4-6", "claude-sonnet-4-6", "claude-opus-4-5", "claude-sonnet-4-5"),
        *("claude-haiku-4-5",),
    ),
    "gemini": ("gemini-2.5-pro", "gemini-3-pro-preview", "gemini-3-flash-preview", "gemini-2.5-flash"),
    "opencode": (
        *("anthropic/claude-sonnet-4-5", "anthropic/claude-opus-4-5", "anthropic/claude-sonnet-4-6"),
        *("openai/gpt-5.3-codex", "openai/gpt-5.2-codex", "google/gemini-2.5-pro", "google/gemini-3-pro-preview"),
    ),
    # The user's own program, which takes any model.
    "command": (),
}
AGENTS = tuple(MODELS)
OWN_COMMAND = "command"
# What can be looked for on the PATH.
PROGRAMS = tuple(name for name in AGENTS if name != OWN_COMMAND)
DEFAULT_AGENT = AGENTS[0]
DEFAULT_MODEL = MODELS[DEFAULT_AGENT][0]

if TYPE_CHECKING:
    Agent = str
else:
    # Settings and tools validate by it, and their schemas show it.
    Agent = Literal[AGENTS]
