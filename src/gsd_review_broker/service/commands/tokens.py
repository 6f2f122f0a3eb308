"""Tokens, and the links that sign in to the dashboard with one."""

import base64
import hashlib
import secrets
from typing import NamedTuple

from gsd_review_broker.domain.caller import ISSUED_PREFIX, SignInLink, Token
from gsd_review_broker.domain.model import Identity, Milliseconds
from gsd_review_broker.domain.rules import access
from gsd_review_broker.domain.text import BROKER
from gsd_review_broker.domain.words import TokenRole
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.store import Transaction
from gsd_review_broker.service import validation
from gsd_review_broker.service.access import hash_of
from gsd_review_broker.service.core import Core
from gsd_review_broker.service.wire.broker import NewToken, TokenList, TokenRow, token_row

_MOST = 1_000


class Tokens:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def new(
        self, by: Identity | None, role: str, *, name: str | None, project: str | None, expires: str | None
    ) -> NewToken:
        """Make a token. Its text is in this answer and nowhere else."""
        limits = self._core.policy.limits
        chosen = _role(role)
        given = name if name is not None else f"{chosen}-{secrets.token_hex(3)}"
        checked = validation.identity("name", given, limits)
        validation.project(project, limits)
        text = ISSUED_PREFIX + secrets.token_urlsafe(32)

        def command(tx: Transaction) -> Token:
            same = tx.lock_token(checked)
            access.refuse_token_name(checked, taken_by=same, is_of_pool=tx.reviewer(checked) is not None, now=tx.now)
            if same is not None:
                # It has expired; its name is free again.
                tx.revoke_token(same, tx.now)
            token = Token(
                hash=hash_of(text),
                name=checked,
                role=chosen,
                project=project,
                created_at=tx.now,
                created_by=by or BROKER,
                expires_at=access.expiry(expires, tx.now),
            )
            tx.save_token(token)
            return token

        token = await self._core.store.write(command)
        return {"token": text, **token_row(token, token.created_at)}

    async def listed(self) -> TokenList:
        now = self._core.clock.now()
        known = await self._core.store.read(lambda reader: reader.tokens(_MOST))
        return {"tokens": [token_row(token, now) for token in known]}

    async def revoke(self, name: str) -> TokenRow:
        def command(tx: Transaction) -> Token:
            token = tx.lock_token(name)
            if token is None:
                raise BrokerError(
                    Code.NOT_FOUND, f"there is no token {name[:64]!r} to revoke", "`tandem token list` lists all."
                )
            tx.revoke_token(token, tx.now)
            return token

        token = await self._core.store.write(command)
        return {**token_row(token, self._core.clock.now()), "state": "revoked"}


def _role(text: str) -> TokenRole:
    try:
        return TokenRole(text)
    except ValueError as error:
        raise BrokerError(
            Code.INVALID_ARGUMENT, f"role: {text[:64]!r} is not a role", f"The roles are {', '.join(TokenRole)}."
        ) from error


_VALID_MILLISECONDS = 60_000
_SEAL = b"tandem sign-in\0"


class SignedIn(NamedTuple):
    token: str
    page: str


class SignInLinks:
    def __init__(self, core: Core) -> None:
        self._store = core.store

    async def new(self, token: str, page: str) -> str:
        """Make a link, and return its code."""
        code = secrets.token_urlsafe(24)

        def command(tx: Transaction) -> None:
            now = tx.now
            link = SignInLink(
                hash=hash_of(code),
                sealed_token=_sealed(token, code),
                page=page,
                expires_at=Milliseconds(now + _VALID_MILLISECONDS),
            )
            tx.save_sign_in_link(link, now)

        await self._store.write(command)
        return code

    async def use(self, code: str) -> SignedIn | None:
        """Return None if the link is unknown, used or expired."""

        def command(tx: Transaction) -> SignInLink | None:
            link = tx.take_sign_in_link(hash_of(code))
            return None if link is None or link.expires_at <= tx.now else link

        link = await self._store.write(command)
        if link is None:
            return None
        token = _opened(link.sealed_token, code)
        return None if token is None else SignedIn(token, link.page)


def _sealed(token: str, code: str) -> str:
    from cryptography.fernet import Fernet  # noqa: PLC0415 - few brokers make links

    return Fernet(_key_of(code)).encrypt(token.encode("utf-8", "surrogateescape")).decode("ascii")


def _opened(sealed: str, code: str) -> str | None:
    from cryptography.fernet import Fernet, InvalidToken  # noqa: PLC0415 - as above

    try:
        return Fernet(_key_of(code)).decrypt(sealed).decode("utf-8", "surrogateescape")
    except InvalidToken:
        return None


def _key_of(code: str) -> bytes:
    """Make a key of the code: a hash is enough, because the code is random and long."""
    return base64.urlsafe_b64encode(hashlib.sha256(_SEAL + code.encode("utf-8", "surrogateescape")).digest())
