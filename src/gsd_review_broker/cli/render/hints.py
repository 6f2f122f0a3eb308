"""The broker advises agents, by the names of its tools; who types commands is told those."""

import re

_COMMANDS = {
    "add_message": "tandem message",
    "claim_next": "tandem claim",
    "claim_review": "tandem claim ID",
    "get_discussion": "tandem show",
    "get_proposal": "tandem diff",
    "get_review_status": "tandem show",
    "list_reviews": "tandem list",
}
_TOOL = re.compile(rf"\b({'|'.join(_COMMANDS)})\b")


def in_commands(hint: str) -> str:
    return _TOOL.sub(lambda found: f"`{_COMMANDS[found[1]]}`", hint)
