"""What a page's address and its forms may say."""

import pytest

from gsd_review_broker.domain.words import Severity
from gsd_review_broker.errors import BrokerError
from gsd_review_broker.web.addresses import LineName, choice
from gsd_review_broker.web.site import Form


def test_a_word_that_is_not_in_the_list_is_refused_with_the_list() -> None:
    assert choice({"severity": "low"}, "severity", Severity) is Severity.LOW
    assert choice({"severity": " "}, "severity", Severity) is None
    with pytest.raises(BrokerError, match="severity: choose critical, high, medium or low"):
        choice({"severity": "grave"}, "severity", Severity)


def test_a_form_has_to_choose() -> None:
    assert Form({"severity": "high"}).choice("severity", Severity) is Severity.HIGH
    with pytest.raises(BrokerError, match="severity: choose one"):
        Form({}).choice("severity", Severity)


@pytest.mark.parametrize("name", ["f0n12", "f3o120", "f999999n999999999"])
def test_a_lines_name_is_read_and_written_alike(name: str) -> None:
    assert str(LineName.of(name)) == name


@pytest.mark.parametrize("name", ["", "f0", "f0x1", "f0n", "n1", "f0n1 ", "f1234567n1", "f0n1234567890", "f0n1\n"])
def test_another_text_is_no_lines_name(name: str) -> None:
    assert LineName.of(name) is None
