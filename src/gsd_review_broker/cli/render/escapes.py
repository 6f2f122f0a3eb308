"""Makes agents' text safe to print: nothing in it moves a cursor, hides, or reverses text."""

from gsd_review_broker.domain.characters import with_hidden_shown


def visible(text: str) -> str:
    """Replace each control, format or invisible character by its escape."""
    return with_hidden_shown(text, _escape)


def visible_block(text: str) -> str:
    """Do the same for text of several lines: line feeds and tabs stay."""
    return with_hidden_shown(text, _escape, is_block=True)


def _escape(character: str) -> str:
    match character:
        case "\n":
            return "\\n"
        case "\r":
            return "\\r"
        case "\t":
            return "\\t"
        case _:
            number = ord(character)
            if number < 0x100:  # noqa: PLR2004 - two hexadecimal digits
                return f"\\x{number:02x}"
            return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"  # noqa: PLR2004 - what four digits hold
