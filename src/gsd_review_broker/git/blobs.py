"""One file's content as the repository stores it, for showing it: hashed again, and not more than was asked for."""

from pathlib import Path

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.git.apart import make_apart
from gsd_review_broker.git.check import ask_git
from gsd_review_broker.git.objects import TooLargeError, opened_objects
from gsd_review_broker.git.program import text_of

_STORE = ("rev-parse", "--path-format=absolute", "--git-path", "objects", "--show-object-format")


def read_blob(workspace: str, scratch: Path, object_id: str, *, most: int, timeout: float) -> bytes:
    """Raises BrokerError if it is missing or larger than `most` bytes."""
    answer = ask_git(workspace, *_STORE, timeout=timeout)
    # A path may contain a line feed, so the format is taken from the end.
    store, _, object_format = text_of(answer.output).rpartition("\n")
    if answer.code != 0 or object_format not in {"sha1", "sha256"}:
        raise BrokerError(Code.UNAVAILABLE, f"git does not answer in {workspace}: {answer.why}", "See that git runs.")
    apart = make_apart(scratch, objects=store, object_format=object_format)
    with opened_objects(apart.folder, apart.environment, object_format, timeout, most=most) as objects:
        try:
            return objects.read(object_id, "blob")
        except TooLargeError:
            raise BrokerError(
                Code.TOO_LARGE, f"the file has more than {most} bytes", "Look at it in an editor."
            ) from None
