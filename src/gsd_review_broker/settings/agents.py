"""The programs that the pool can start as reviewers, by name, each with the models that a project may choose.

To add one: an entry here, and a module of the same name in `pool/launch/agents` (a dash in the name is an underscore
in the module's). The command line, the settings, the tools and the doctor read this list. It is light on purpose: the
command line imports it at every start.
"""

from typing import TYPE_CHECKING, Literal

# The models that a project's file may name: those of the programs of November 2026. The user's own file may name any.
MODELS: dict[str, tuple[str, ...]] = {
    "codex": (
        *("gpt-6.1-sol", "gpt-6.1-terra", "gpt-6-astra", "gpt-6-sol", "gpt-6-luna"),
        *("gpt-5.6-sol", "gpt-5.6-terra", "gpt-5.6-luna", "gpt-5.5"),
    ),
    "claude": (
        *("opus", "sonnet", "haiku", "claude-opus-5-5", "claude-opus-5", "claude-sonnet-5-5", "claude-sonnet-5"),
        *("claude-haiku-5-5", "claude-fable-5-2", "claude-fable-5-1", "claude-fable-5", "claude-opus-4-8"),
        *("claude-opus-4-7", "claude-opus-4-6", "claude-sonnet-4-6", "claude-sonnet-4-5", "claude-haiku-4-5"),
    ),
    "gemini": (
        *("gemini-3.1-pro-preview", "gemini-3-pro-preview", "gemini-3.8-flash", "gemini-3.5-flash"),
        *("gemini-3-flash-preview", "gemini-3.5-flash-lite", "gemini-3.1-flash-lite", "gemini-2.5-pro"),
        *("gemini-2.5-flash", "gemini-2.5-flash-lite"),
    ),
    "opencode": (
        *("anthropic/claude-opus-5-5", "anthropic/claude-sonnet-5-5", "anthropic/claude-haiku-5-5"),
        *("openai/gpt-6.1-sol", "openai/gpt-6.1-terra", "openai/gpt-6-sol", "google/gemini-3.1-pro-preview"),
        *("google/gemini-3.8-flash", "google/gemini-2.5-pro"),
    ),
    # The user's own program, which takes any model.
    "command": (),
}
AGENTS = tuple(MODELS)
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
