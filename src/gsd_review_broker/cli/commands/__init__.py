"""The commands by topic, and the modules that have them. Only the one that is called is imported.

A module has `register(commands)`; a group such as `audit` may be made by several modules."""

TOPICS: tuple[tuple[str, dict[str, tuple[str, ...]]], ...] = (
    (
        "Propose",
        {
            "propose": ("proposing",),
            "wait": ("waiting",),
            "accept": ("answering",),
            "reject": ("answering",),
            "apply": ("applying",),
            "close": ("answering",),
        },
    ),
    (
        "Review",
        {
            "claim": ("judging",),
            "release": ("judging",),
            "approve": ("judging",),
            "request-changes": ("judging",),
            "comment": ("judging",),
            "counter": ("judging",),
        },
    ),
    (
        "Discuss",
        {
            "message": ("answering",),
            "resolve": ("answering",),
        },
    ),
    (
        "Look",
        {
            "list": ("reviews",),
            "show": ("reviews",),
            "diff": ("diffs",),
            "log": ("watching",),
            "watch": ("watching",),
            "stats": ("statistics",),
            "open": ("pages",),
            "audit": ("audit_log", "database"),
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
            "serve": ("serving",),
            "up": ("running",),
            "down": ("running",),
            "status": ("running",),
            "mcp": ("bridging",),
            "config": ("serving",),
            "doctor": ("doctor",),
            "db": ("database",),
        },
    ),
    (
        "Begin",
        {
            "demo": ("demo",),
            "install": ("setup",),
            "uninstall": ("setup",),
            "completion": ("completion",),
        },
    ),
)


# For programs, not for people.
HIDDEN: dict[str, tuple[str, ...]] = {"__complete": ("completion",)}


def modules_of(command: str) -> tuple[str, ...]:
    """Empty for a command that there is not."""
    listed = [names for _, names in TOPICS]
    return next((names[command] for names in (*listed, HIDDEN) if command in names), ())


def all_modules() -> tuple[str, ...]:
    listed = [module for _, names in TOPICS for modules in names.values() for module in modules]
    return tuple(dict.fromkeys(listed))
