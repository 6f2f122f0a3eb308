"""Durations as people read them. The dashboard and the command line say them alike."""

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_FEW_SECONDS = 10


def in_words(seconds: float) -> str:
    """At most two units, rounded down: `0.5 s`, `42 s`, `1 min 30 s`, `2 h`, `1 d 12 h`."""
    if seconds < _FEW_SECONDS:
        return f"{max(int(seconds * 10), 0) / 10} s"
    left = int(seconds)
    words: list[str] = []
    for size, unit in _UNITS:
        count, rest = divmod(left, size)
        if words or count:
            words.append(f"{count} {unit}" if count else "")
            left = rest
    return " ".join(words[:2]).rstrip()
