"""The fast ways to make an object do what the dataclasses' own do."""

import dataclasses

import pytest

from gsd_review_broker.domain.fields import copy_with, field_names, from_values, values_of
from gsd_review_broker.domain.model import Review
from gsd_review_broker.domain.words import Status
from tests.support.reviews import in_status


def test_a_copy_is_what_dataclasses_make_whichever_field_changes() -> None:
    review = in_status(Status.PENDING)
    for name in field_names(Review):
        changed = {name: f"another {name}", "version": 7}
        assert copy_with(review, **changed) == dataclasses.replace(review, **changed)
    assert copy_with(review) == review
    assert review.status is Status.PENDING


def test_a_copy_has_no_field_that_the_object_does_not_have() -> None:
    with pytest.raises(KeyError, match="colour"):
        copy_with(in_status(Status.PENDING), colour="red")


def test_an_object_is_made_of_its_values_in_their_order() -> None:
    review = in_status(Status.PENDING)
    # A row may have more columns than the object has fields.
    assert from_values(Review, [*values_of(review).values(), "another column"]) == review
