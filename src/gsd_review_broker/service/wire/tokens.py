"""What administrators see of tokens."""

from typing import TypedDict


class TokenRow(TypedDict):
    name: str
    role: str
    identity: str
    project: str | None
    state: str
    created_at: str | None
    created_by: str
    expires_at: str | None
    revoked_at: str | None


class NewToken(TokenRow):
    token: str


class TokenList(TypedDict):
    tokens: list[TokenRow]
