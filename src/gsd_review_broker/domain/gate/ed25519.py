"""Checking an Ed25519 signature (RFC 8032), so that a range can be verified where nothing but Python is installed.

For checking only: it uses no secret, so its time may depend on its input. Signing is done by `cryptography`."""

import hashlib
from functools import cache

_PRIME = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _PRIME) % _PRIME
_ROOT_OF_MINUS_ONE = pow(2, (_PRIME - 1) // 4, _PRIME)
_KEY_BYTES = 32
_SIGNATURE_BYTES = 64

# In extended coordinates: x = X/Z, y = Y/Z, x*y = T/Z.
_Point = tuple[int, int, int, int]


def is_signed(public_key: bytes, message: bytes, signature: bytes) -> bool:
    if len(public_key) != _KEY_BYTES or len(signature) != _SIGNATURE_BYTES:
        return False
    key, commitment = _decoded(public_key), _decoded(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if key is None or commitment is None or scalar >= _ORDER:
        return False
    challenge = hashlib.sha512(signature[:32] + public_key + message).digest()
    multiple = _times(int.from_bytes(challenge, "little") % _ORDER, key)
    return _same(_times(scalar, _base()), _sum(commitment, multiple))


def _sum(one: _Point, other: _Point) -> _Point:
    a = (one[1] - one[0]) * (other[1] - other[0]) % _PRIME
    b = (one[1] + one[0]) * (other[1] + other[0]) % _PRIME
    c = 2 * one[3] * other[3] * _D % _PRIME
    d = 2 * one[2] * other[2] % _PRIME
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _PRIME, g * h % _PRIME, f * g % _PRIME, e * h % _PRIME


def _times(scalar: int, point: _Point) -> _Point:
    result: _Point = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = _sum(result, point)
        point = _sum(point, point)
        scalar >>= 1
    return result


def _same(one: _Point, other: _Point) -> bool:
    return (one[0] * other[2] - other[0] * one[2]) % _PRIME == 0 and (
        one[1] * other[2] - other[1] * one[2]
    ) % _PRIME == 0


def _decoded(encoded: bytes) -> _Point | None:
    number = int.from_bytes(encoded, "little")
    sign, y = number >> 255, number & (2**255 - 1)
    if y >= _PRIME:
        return None
    squared = (y * y - 1) * pow(_D * y * y + 1, -1, _PRIME) % _PRIME
    x = pow(squared, (_PRIME + 3) // 8, _PRIME)
    if (x * x - squared) % _PRIME:
        x = x * _ROOT_OF_MINUS_ONE % _PRIME
    if (x * x - squared) % _PRIME or (x == 0 and sign):
        return None
    x = _PRIME - x if x & 1 != sign else x
    return x, y, 1, x * y % _PRIME


@cache
def _base() -> _Point:
    point = _decoded((4 * pow(5, -1, _PRIME) % _PRIME).to_bytes(32, "little"))
    assert point is not None  # noqa: S101 - the base point is on the curve
    return point
