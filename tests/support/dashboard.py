"""Shared by the dashboard's tests: a small shop, changes to it, and a person in front of the browser."""

import getpass
from typing import Any

from playwright.sync_api import Page

from tests.support.mcp import Mcp

SESSIONS = '''"""Sessions of the web front end."""

import hashlib
import time


class SessionStore:
    def __init__(self, limit):
        self.limit = limit
        self.sessions = {}

    def create(self, user):
        token = hashlib.md5(user.encode()).hexdigest()
        self.sessions[token] = (user, time.time())
        return token
'''
SHOP = {"shop/sessions.py": SESSIONS, "hello.txt": "one\ntwo\nthree\n"}
PROPOSAL: dict[str, Any] = {
    "agent_type": "claude-code",
    "agent_role": "proposer",
    "phase": "3",
    "category": "code_change",
    "project": "shop",
}


def token_of(size: int) -> str:
    """A change to the shop: tokens that cannot be guessed."""
    return (
        "diff --git a/shop/sessions.py b/shop/sessions.py\n--- a/shop/sessions.py\n+++ b/shop/sessions.py\n"
        "@@ -1,6 +1,6 @@\n"
        ' """Sessions of the web front end."""\n \n-import hashlib\n+import secrets\n import time\n \n \n'
        "@@ -10,6 +10,6 @@ class SessionStore:\n         self.sessions = {}\n \n     def create(self, user):\n"
        "-        token = hashlib.md5(user.encode()).hexdigest()\n"
        f"+        token = secrets.token_urlsafe({size})\n"
        "         self.sessions[token] = (user, time.time())\n         return token\n"
    )


def hello(word: str) -> str:
    return f"--- a/hello.txt\n+++ b/hello.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+{word}\n three\n"


def created(path: str, lines: int, *, text: str = "value_{} = {}") -> str:
    body = "".join(f"+{text.format(number, number)}\n" for number in range(lines))
    head = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
    return f"{head}@@ -0,0 +1,{lines} @@\n{body}"


def propose(client: Mcp, **arguments: Any) -> str:
    proposal = {**PROPOSAL, "intent": "Tokens that nobody can guess", "diff": token_of(16), **arguments}
    return client("create_review", **proposal)["review_id"]


class Person:
    """The person in front of the browser, as the broker's own user."""

    def __init__(self, page: Page, port: int) -> None:
        self.page = page
        self.address = f"http://127.0.0.1:{port}"
        self.name = f"human:{getpass.getuser()}"
        self.faults: list[str] = []
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda message: self.faults.append(message.text) if message.type == "error" else None)

    def go(self, path: str) -> Page:
        self.page.goto(self.address + path)
        return self.page
