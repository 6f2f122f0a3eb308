"""JSON as it is stored, hashed and compared: compact, in Unicode. Its bytes must never change."""

import json
from typing import Any

# Made once: json.dumps makes an encoder for each call with options.
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_CANONICAL = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def compact(value: Any) -> str:
    return _COMPACT.encode(value)


def canonical(value: Any) -> str:
    """With sorted keys: the same text for the same content."""
    return _CANONICAL.encode(value)
