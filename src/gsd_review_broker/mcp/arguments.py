"""The types of arguments that several tools share."""

import math
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from gsd_review_broker.service.validation import Integer


def _number_as_text(value: Any) -> Any:
    """Phases are often numbers, and models then send 1 or 2.1 without quotes; true is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return str(value) if math.isfinite(value) else value


Since = Annotated[Integer | None, Field(description="the last version you know")]
Key = str | None
Label = Annotated[str, BeforeValidator(_number_as_text)]
