"""Links that sign in to the dashboard: each works once, within a minute, on every broker of the database.

The database holds neither the link's code nor the token that it stands for: the token is encrypted with the code, and
of the code there is a hash. A reader of the database can use no link and learns no token.
"""

import base64
import hashlib
import secrets
from typing import NamedTuple

from gsd_review_broker.domain.caller import SignInLink
from gsd_review_broker.domain.model import Milliseconds
from gsd_review_broker.ports.store import Transaction
from gsd_review_broker.service.core import Core

_VALID_MILLISECONDS = 60_000
_SEAL = b"tandem sign-in\0"


class SignedIn(NamedTuple):
    token: str
    page: str


class SignInLinks:
    def __init__(self, core: Core) -> None:
        self._store = core.store

    async def new(self, token: str, page: str) -> str:
        """The code of a new link."""
        code = secrets.token_urlsafe(24)

        def command(tx: Transaction) -> None:
            now = tx.now
            link = SignInLink(
                hash=_hash_of(code),
                sealed_token=_sealed(token, code),
                page=page,
                expires_at=Milliseconds(now + _VALID_MILLISECONDS),
            )
            tx.save_sign_in_link(link, now)

        await self._store.write(command)
        return code

    async def use(self, code: str) -> SignedIn | None:
        """None if there is no such link, if it was used, or if it has expired."""

        def command(tx: Transaction) -> SignInLink | None:
            link = tx.take_sign_in_link(_hash_of(code))
            return None if link is None or link.expires_at <= tx.now else link

        link = await self._store.write(command)
        if link is None:
            return None
        token = _opened(link.sealed_token, code)
        return None if token is None else SignedIn(token, link.page)


def _hash_of(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogateescape")).hexdigest()


def _sealed(token: str, code: str) -> str:
    from cryptography.fernet import Fernet  # noqa: PLC0415 - few brokers make links

    return Fernet(_key_of(code)).encrypt(token.encode("utf-8", "surrogateescape")).decode("ascii")


def _opened(sealed: str, code: str) -> str | None:
    """None for a link that an earlier version of the broker made."""
    from cryptography.fernet import Fernet, InvalidToken  # noqa: PLC0415 - as above

    try:
        return Fernet(_key_of(code)).decrypt(sealed).decode("utf-8", "surrogateescape")
    except InvalidToken:
        return None


def _key_of(code: str) -> bytes:
    """The code is random, and has 24 bytes: a hash is enough to make a key of it."""
    return base64.urlsafe_b64encode(hashlib.sha256(_SEAL + code.encode("utf-8", "surrogateescape")).digest())
