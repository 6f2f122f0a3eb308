"""The texts of the two agents and their messages.

Only the agents are scripted; broker, git and the calls between them are real.
"""

from typing import Any

FILE = "greet.py"
PROPOSER = "demo-proposer"
REVIEWER = "demo-reviewer"
INTENT = "Greet by the name that stands in a file"
DESCRIPTION = (
    "So far the program greets the world alone. It shall read a name from a file, and greet the world without one."
)

ORIGINAL = '''\
"""Says hello."""


def greeting() -> str:
    return "Hello, world!"


if __name__ == "__main__":
    print(greeting())
'''

FIRST = '''\
"""Says hello."""

import sys


def greeting(path: str) -> str:
    name = open(path).read()
    return "Hello, " + name + "!"


if __name__ == "__main__":
    print(greeting(sys.argv[1]))
'''

SECOND = '''\
"""Says hello."""

import sys


def greeting(path: str | None) -> str:
    name = "world"
    if path:
        with open(path, encoding="utf-8") as file:
            name = file.read()
    return f"Hello, {name}!"


if __name__ == "__main__":
    print(greeting(sys.argv[1] if len(sys.argv) > 1 else None))
'''

COUNTER = '''\
"""Says hello."""

import sys
from pathlib import Path


def greeting(path: str | None) -> str:
    name = Path(path).read_text("utf-8").strip() if path else "world"
    return f"Hello, {name}!"


if __name__ == "__main__":
    print(greeting(sys.argv[1] if len(sys.argv) > 1 else None))
'''

FINDINGS: list[dict[str, Any]] = [
    {
        "path": FILE,
        "line_start": 7,
        "line_end": 7,
        "severity": "high",
        "title": "The file is never closed",
        "body": "Open it in a with statement, and name the encoding: it depends on the machine otherwise.",
    },
    {
        "path": FILE,
        "line_start": 12,
        "line_end": 12,
        "severity": "medium",
        "title": "Without an argument it crashes",
        "body": "The description says that it greets the world then; sys.argv[1] raises IndexError.",
    },
]
FIRST_VERDICT = "Two things before this may land."
ANSWER = "Both are right. The second revision closes the file, names UTF-8 and greets the world without a name."
COUNTER_VERDICT = "Better. But a name's line feed ends up before the exclamation mark; this is shorter and strips it."
LAST_VERDICT = "This is what I would have written."
COMMIT = "Greet by the name that stands in a file"
TAMPERED = COUNTER.replace("Hello, {name}!", "Hello, {name}?")
