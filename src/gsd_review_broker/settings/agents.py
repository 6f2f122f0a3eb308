"""The models that a project may choose for the programs that the pool starts, and the type of these programs' names."""

from typing import TYPE_CHECKING, Literal

from gsd_review_broker.domain.words import AGENTS

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
}

if TYPE_CHECKING:
    Agent = str
else:
    # Settings and tools validate by it, and their schemas show it.
    Agent = Literal[AGENTS]
