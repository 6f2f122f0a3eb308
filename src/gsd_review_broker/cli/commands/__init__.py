"""The commands by topic, each with the module that registers it. Only the module of the called command is imported."""

TOPICS = {
    "Propose": {
        "propose": "propose",
        "wait": "log",
        "accept": "respond",
        "reject": "respond",
        "apply": "apply",
        "close": "respond",
    },
    "Review": {
        "claim": "review",
        "release": "review",
        "approve": "review",
        "request-changes": "review",
        "comment": "review",
        "counter": "review",
    },
    "Discuss": {
        "message": "respond",
        "resolve": "respond",
    },
    "Look": {
        "list": "list",
        "show": "list",
        "diff": "diff",
        "log": "log",
        "watch": "log",
        "stats": "stats",
        "open": "list",
        "audit": "db",
    },
    "The gate": {
        "gate": "gate",
    },
    "GSD": {
        "gsd": "gsd",
    },
    "Reviewers": {
        "pool": "pool",
    },
    "The broker": {
        "serve": "serve",
        "up": "background",
        "down": "background",
        "status": "background",
        "mcp": "mcp",
        "config": "serve",
        "doctor": "doctor",
        "db": "db",
        "token": "token",
    },
    "Begin": {
        "setup": "setup",
        "demo": "demo",
        "install": "install",
        "uninstall": "install",
        "completion": "completion",
    },
}


# For programs, not for people.
HIDDEN = {"__complete": "completion"}


def module_of(command: str) -> str | None:
    """Return the module that registers this command; None for an unknown command."""
    return next((names[command] for names in (*TOPICS.values(), HIDDEN) if command in names), None)


def all_modules() -> tuple[str, ...]:
    return tuple(dict.fromkeys(module for names in TOPICS.values() for module in names.values()))
