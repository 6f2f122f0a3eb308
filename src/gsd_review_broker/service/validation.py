"""Checks of all input: the types of arguments, valid text, limits. Every front end uses them."""

import asyncio
import math
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from gsd_review_broker.domain import words
from gsd_review_broker.domain.model import AffectedFile, Identity, Limits
from gsd_review_broker.domain.patch import reading, safety
from gsd_review_broker.domain.text import hidden_in, identity_key, is_reserved
from gsd_review_broker.domain.words import values
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep

# Pydantic serializes about 200 levels, and a result adds a few.
_DEEPEST = 64
# Larger diffs are read in a thread, so that the event loop does not wait.
_READ_INLINE_BYTES = 64 * 1024
_PROJECT = re.compile(r"(?!_)[\w@][\w./@+:-]{0,99}")


def text(name: str, value: str, limit: int) -> str:
    """Refuse a text that is blank, too long, or not storable in every database."""
    if not value.strip():
        raise BrokerError(Code.INVALID_ARGUMENT, f"{name}: must not be empty or blank", f"Give {name} a text.")
    return optional_text(name, value, limit) or ""


def optional_text(name: str, value: str | None, limit: int) -> str | None:
    if value is None:
        return None
    size = len(encoded(name, value))
    if size > limit:
        raise BrokerError(
            Code.TOO_LARGE,
            f"{name}: {size} bytes, and the limit is {limit} bytes",
            f"Shorten {name}, or raise the limit in the configuration.",
        )
    return value


def encoded(name: str, value: str) -> bytes:
    """UTF-8 as it will be stored. Not every database can store a NUL or a lone surrogate."""
    if "\0" in value:
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"{name}: holds a NUL character",
            "Leave it out; a binary file travels as a git binary patch.",
        )
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"{name}: holds half a character (a lone surrogate) at position {error.start}",
            "Send valid Unicode; a file that is not UTF-8 travels as a git binary patch.",
        ) from error


def identity(name: str, value: str, limits: Limits) -> Identity:
    if not identity_key(value):
        raise BrokerError(Code.INVALID_ARGUMENT, f"{name}: has no visible character", f"Give {name} a name.")
    checked = Identity(text(name, value, limits.name).strip())
    hidden = hidden_in(checked)
    if hidden:
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"{name}: holds U+{ord(hidden[0]):04X}, which is invisible",
            "Leave it out: two names must not look the same.",
        )
    if is_reserved(checked):
        raise BrokerError(
            Code.INVALID_ARGUMENT, f"{name}: {checked} is the broker's own name", "Take a name of your own."
        )
    return checked


def optional_identity(name: str, value: str | None, limits: Limits) -> Identity | None:
    return None if value is None else identity(name, value, limits)


def project(value: str | None, limits: Limits) -> str | None:
    """Require one word: the name is written into a reviewer's prompt, and must not say anything there."""
    if value is None:
        return None
    if not _PROJECT.fullmatch(value):
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"project: {value[:64]!r} is not a project's name",
            "Allowed are up to 100 letters, digits and . _ - / @ + :, and first a letter, a digit or @.",
        )
    return optional_text("project", value, limits.name)


def between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"{name}: {value:g} is not between {low:g} and {high:g}",
            f"Give {name} in that range.",
        )


def refuse_unstorable(name: str, value: Any, depth: int = 0) -> None:
    """Refuse values that a database or JSON cannot hold, at any depth, before anything else reads them."""
    match value:
        case str() if value.isascii() and "\0" not in value:
            # Most are, and need not be encoded.
            pass
        case str():
            encoded(name, value)
        case int() if not -(2**63) <= value < 2**63:
            raise _unstorable(name, "holds an integer of more than 64 bits")
        case float() if not math.isfinite(value):
            raise _unstorable(name, f"holds {value}, which JSON does not have")
        case list() | dict() if depth == _DEEPEST:
            raise _unstorable(name[:200], f"is nested deeper than {_DEEPEST}")
        case list():
            for index, item in enumerate(cast("list[Any]", value)):
                refuse_unstorable(f"{name}.{index}", item, depth + 1)
        case dict():
            for key, item in cast("dict[str, Any]", value).items():
                encoded(name, key)
                refuse_unstorable(f"{name}.{key}", item, depth + 1)
        case _:
            pass


def _unstorable(name: str, why: str) -> BrokerError:
    return BrokerError(Code.INVALID_ARGUMENT, f"{name}: {why}", "Send a smaller or simpler value.")


async def read_diff(name: str, diff: str | None, limits: Limits) -> tuple[bytes | None, tuple[AffectedFile, ...]]:
    """Return the diff's bytes and the files it touches. An empty diff is the same as none."""
    if diff is None or not diff.strip():
        return None, ()
    optional_text(name, diff, limits.diff)
    content = encoded(name, diff)
    if len(content) <= _READ_INLINE_BYTES:
        files = _read_safely(name, content, limits)
    else:
        files = await asyncio.to_thread(_read_safely, name, content, limits)
    if len(files) > limits.diff_files:
        raise BrokerError(
            Code.TOO_LARGE,
            f"{name}: it touches {len(files)} files, and the limit is {limits.diff_files} files",
            NextStep(Next.SPLIT),
        )
    return content, files


def _read_safely(name: str, diff: bytes, limits: Limits) -> tuple[AffectedFile, ...]:
    """List the files it touches; none if it cannot be read (the claim will say why). Refuse unsafe paths."""
    try:
        parsed = reading.read(diff)
    except reading.UnreadableDiffError:
        parsed = None
    unsafe = safety.unsafe_paths(diff, parsed)
    if unsafe:
        raise BrokerError(
            Code.DIFF_INVALID,
            f"{name}: it names paths outside the tree or inside .git: {', '.join(map(repr, unsafe[:5]))}",
            "A change touches files of the work tree only; make the diff again with git diff.",
        )
    unclear = safety.unclear_sections(parsed) if parsed else None
    if unclear:
        raise BrokerError(Code.DIFF_INVALID, f"{name}: {unclear}", "Make the diff again with git diff.")
    unpacked = sum(file.unpacked_bytes for file in parsed or ())
    if unpacked > limits.unpacked:
        raise BrokerError(
            Code.TOO_LARGE,
            f"{name}: its binary files unpack to {unpacked} bytes, and the limit is {limits.unpacked} bytes",
            "Leave large binary files out of the change, or raise the limit in the configuration.",
        )
    return reading.affected_files(parsed) if parsed else ()


def _integral(value: Any) -> Any:
    """JSON Schema calls 5.0 an integer, and some clients send it so; true is not one."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**63 else value


def _severity(value: str) -> words.Severity:
    return words.SEVERITY_SPELLINGS.get(value) or words.Severity(value)


Integer = Annotated[int, BeforeValidator(_integral)]

if TYPE_CHECKING:
    Category = str
    Disposition = str
    Role = str
    Severity = words.Severity
    Side = words.Side
    Status = str
    Verdict = str
    VerdictOrSpelling = str
else:
    # Arguments are validated by these, and the tools' schemas show them.
    Category = Literal[tuple(values(words.Category))]
    Disposition = Literal[tuple(values(words.RESOLUTIONS))]
    Role = Literal[tuple(values(words.Role))]
    Severity = Annotated[Literal[(*values(words.Severity), *words.SEVERITY_SPELLINGS)], AfterValidator(_severity)]
    Side = Annotated[Literal[tuple(values(words.Side))], AfterValidator(words.Side)]
    Status = Literal[tuple(values(words.Status))]
    Verdict = Literal[tuple(values(words.Verdict))]
    VerdictOrSpelling = Literal[(*values(words.Verdict), *words.VERDICT_SPELLINGS)]


class FindingArgument(BaseModel):
    """One inline remark, as a reviewer writes it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: str
    body: str
    severity: Severity
    path: str | None = None
    line_start: Integer | None = None
    line_end: Integer | None = None
    side: Side = words.Side.NEW
    suggestion: str | None = None
    confidence: float | None = None
