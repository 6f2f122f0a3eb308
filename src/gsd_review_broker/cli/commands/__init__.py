"""The commands by topic, and the modules that have them. Only the one that is called is imported.

A module has `register(commands)`; a group such as `audit` may be made by several modules."""

TOPICS: tuple[tuple[str, dict[str, tuple[str, ...]]], ...] = (
    (
        "Look",
        {
            "list": ("reviews",),
            "show": ("reviews",),
            "audit": ("audit_log", "database"),
        },
    ),
    (
        "The broker",
        {
            "serve": ("serving",),
            "config": ("serving",),
            "db": ("database",),
        },
    ),
    (
        "Begin",
        {
            "install": ("setup",),
            "uninstall": ("setup",),
        },
    ),
)


def modules_of(command: str) -> tuple[str, ...]:
    """Empty for a command that there is not."""
    return next((names[command] for _, names in TOPICS if command in names), ())


def all_modules() -> tuple[str, ...]:
    listed = [module for _, names in TOPICS for modules in names.values() for module in modules]
    return tuple(dict.fromkeys(listed))
