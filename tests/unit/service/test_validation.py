"""What is checked of a text before anything is done with it."""

import pytest

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.service import validation


def test_a_limit_is_in_bytes_and_itself_allowed() -> None:
    assert validation.optional_text("intent", "é" * 5, 10) == "é" * 5
    with pytest.raises(BrokerError) as refused:
        validation.optional_text("intent", "é" * 5 + "x", 10)
    assert refused.value.code is Code.TOO_LARGE
    assert "11 bytes" in refused.value.message
    assert "the limit is 10 bytes" in refused.value.message
