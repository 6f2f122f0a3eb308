"""Where a request carries its token: in a header, or, for pages, in a cookie."""

from http.cookies import CookieError, SimpleCookie

from starlette.types import Scope

COOKIE = "tandem_token"


def bearer_of(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip().decode("latin-1")
    return None


def cookie_of(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"cookie" and COOKIE.encode() in value:
            try:
                morsel = SimpleCookie(value.decode("latin-1")).get(COOKIE)
            except CookieError:
                return None
            return morsel.value if morsel else None
    return None
