"""The commands by topic, and the modules that have them. Only the one that is called is imported.

A module has `register(commands)`; a group such as `audit` may be made by several modules."""

TOPICS: tuple[tuple[str, dict[str, tuple[str, ...]]], ...] = (
    (
        "Propose",
        {
            "propose": ("propose",),
            "wait": ("log",),
            "accept": ("respond",),
            "reject": ("respond",),
            "apply": ("apply",),
            "close": ("respond",),
        },
    ),
    (
        "Review",
        {
            "claim": ("review",),
            "release": ("review",),
            "approve": ("review",),
            "request-changes": ("review",),
            "comment": ("review",),
            "counter": ("review",),
        },
    ),
    (
        "Discuss",
        {
            "message": ("respond",),
            "resolve": ("respond",),
        },
    ),
    (
        "Look",
        {
            "list": ("list",),
            "show": ("list",),
            "diff": ("diff",),
            "log": ("log",),
            "watch": ("log",),
            "stats": ("stats",),
            "open": ("list",),
            "audit": ("db",),
        },
    ),
    (
        "The gate",
        {
            "gate": ("gate",),
        },
    ),
    (
        "GSD",
        {
            "gsd": ("gsd",),
        },
    ),
    (
        "Reviewers",
        {
            "pool": ("pool",),
        },
    ),
    (
        "The broker",
        {
            "serve": ("serve",),
            "up": ("background",),
            "down": ("background",),
            "status": ("background",),
            "mcp": ("mcp",),
            "config": ("serve",),
            "doctor": ("doctor",),
            "db": ("db",),
            "token": ("token",),
        },
    ),
    (
        "Begin",
        {
            "setup": ("setup",),
            "demo": ("demo",),
            "install": ("install",),
            "uninstall": ("install",),
            "completion": ("completion",),
        },
    ),
)


# For programs, not for people.
HIDDEN: dict[str, tuple[str, ...]] = {"__complete": ("completion",)}


def modules_of(command: str) -> tuple[str, ...]:
    """Empty for an unknown command."""
    listed = [names for _, names in TOPICS]
    return next((names[command] for names in (*listed, HIDDEN) if command in names), ())


def all_modules() -> tuple[str, ...]:
    listed = [module for _, names in TOPICS for modules in names.values() for module in modules]
    return tuple(dict.fromkeys(listed))
