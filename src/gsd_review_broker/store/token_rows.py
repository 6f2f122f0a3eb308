"""The rows of tokens. Mixed into the store's reader and transaction."""

import sqlalchemy as sa

from gsd_review_broker.domain.caller import SignInLink, Token
from gsd_review_broker.domain.model import Milliseconds, values_of
from gsd_review_broker.domain.text import identity_key
from gsd_review_broker.domain.words import TokenRole
from gsd_review_broker.store.rows import Rows, member_of
from gsd_review_broker.store.statements import Statements, parameter
from gsd_review_broker.store.tables import sign_in_links, tokens

TOKENS = Rows(Token, tokens, role=member_of(TokenRole))

_TOKEN = sa.select(*TOKENS.columns).where(tokens.c.hash == parameter("hash"))
_LISTED = sa.select(*TOKENS.columns).order_by(tokens.c.created_at.desc(), tokens.c.hash).limit(parameter("most"))
_OF_NAME = (
    sa.select(*TOKENS.columns)
    .where(tokens.c.name_key == parameter("name_key"), tokens.c.revoked_at.is_(None))
    .with_for_update()
)
_INSERT = sa.insert(tokens)
_REVOKE = sa.update(tokens).where(tokens.c.hash == parameter("of_hash")).values(revoked_at=parameter("at"))

_LINKS = Rows(SignInLink, sign_in_links)
_INSERT_LINK = sa.insert(sign_in_links)
_REMOVE_OLD_LINKS = sa.delete(sign_in_links).where(sign_in_links.c.expires_at <= parameter("moment"))
_TAKE_LINK = sa.delete(sign_in_links).where(sign_in_links.c.hash == parameter("of_hash")).returning(*_LINKS.columns)


class TokenReads:
    _statements: Statements

    def token(self, token_hash: str) -> Token | None:
        row = self._statements.row(_TOKEN, {"hash": token_hash})
        return TOKENS.read(row) if row else None

    def tokens(self, limit: int) -> list[Token]:
        """The newest first."""
        return [TOKENS.read(row) for row in self._statements.rows(_LISTED, {"most": limit})]


class TokenWrites(TokenReads):
    def lock_token(self, name: str) -> Token | None:
        """The token of this name that was not revoked; it may have expired."""
        row = self._statements.row(_OF_NAME, {"name_key": identity_key(name)})
        return TOKENS.read(row) if row else None

    def save_token(self, token: Token) -> None:
        self._statements.run(_INSERT, values_of(token) | {"name_key": identity_key(token.name)})

    def revoke_token(self, token: Token, now: Milliseconds) -> None:
        self._statements.run(_REVOKE, {"of_hash": token.hash, "at": now})

    def save_sign_in_link(self, link: SignInLink, now: Milliseconds) -> None:
        self._statements.run(_REMOVE_OLD_LINKS, {"moment": now})
        self._statements.run(_INSERT_LINK, values_of(link))

    def take_sign_in_link(self, code_hash: str) -> SignInLink | None:
        row = self._statements.row(_TAKE_LINK, {"of_hash": code_hash})
        return _LINKS.read(row) if row else None
