"""Whose bearer token it is: found once for each request, whatever the request asks."""

import hashlib
import hmac
from enum import StrEnum

from gsd_review_broker.domain.caller import LOCAL, UNKNOWN, Caller, CallerKind
from gsd_review_broker.domain.identity import Identity
from gsd_review_broker.domain.tokens import PREFIX, TokenState
from gsd_review_broker.ports.store import Store
from gsd_review_broker.ports.world import Clock
from gsd_review_broker.service.access import TOKEN_PREFIX, Access


class Auth(StrEnum):
    # Callers on this machine are trusted; the tokens of people and agents are not looked at.
    OFF = "off"
    TOKEN = "token"  # noqa: S105 - the name of a way, not a secret


class Identification:
    """`keeper` is who runs the broker: whoever can read its runtime file has the keeper's token."""

    def __init__(
        self, store: Store, access: Access, clock: Clock, *, auth: Auth, keeper: Identity, keeper_token: str
    ) -> None:
        self._store = store
        self._access = access
        self._clock = clock
        self._auth = auth
        self._keeper = Caller(kind=CallerKind.ADMIN, identity=keeper, proven=True)
        self._keeper_token = keeper_token.encode()

    @property
    def needs_token(self) -> bool:
        return self._auth is Auth.TOKEN

    async def caller(self, bearer: str | None) -> Caller:
        """UNKNOWN where a token is needed and this is not a live one."""
        if bearer is None:
            return UNKNOWN if self.needs_token else LOCAL
        if hmac.compare_digest(bearer.encode("utf-8", "surrogateescape"), self._keeper_token):
            return self._keeper
        if not self.needs_token or bearer.startswith(TOKEN_PREFIX):
            found = self._access.caller(bearer)
            return UNKNOWN if self.needs_token and found is LOCAL else found
        return await self._holder(bearer) if bearer.startswith(PREFIX) else UNKNOWN

    async def _holder(self, bearer: str) -> Caller:
        """Read each time: a token that was revoked, here or by another broker, is dead with the next call."""
        token = await self._store.glance(lambda reader: reader.token(hash_of(bearer)))
        if token is None or token.state(self._clock.now()) is not TokenState.LIVE:
            return UNKNOWN
        return token.caller()


def hash_of(token: str) -> str:
    """Tokens are random and long, so a plain hash cannot be guessed."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
