"""The spread of values in constant space: what it promises of averages and percentiles, for any values."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsd_review_broker.domain import tally
from gsd_review_broker.domain.tally import Histogram

LARGEST = 2**36 - 1
# As a share of the true value: half of a sixteenth, and a little for rounding.
TOLERANCE = 0.032

VALUES = st.one_of(
    st.integers(0, LARGEST),
    st.integers(0, 100),
    # Near the bounds of buckets, where one value more falls into the next.
    st.builds(lambda power, step: max(0, 2**power + step), st.integers(0, 35), st.integers(-2, 2)),
)


def repeated(groups: list[tuple[int, int]]) -> list[int]:
    return [value for value, times in groups for _ in range(times)]


# Values close to each other, some of them many times: one bucket holds them all, unevenly.
CLUSTERED = st.lists(st.tuples(st.sampled_from([512, 513, 542, 543]), st.sampled_from([1, 40])), min_size=2, max_size=3)
SAMPLES = st.one_of(st.lists(VALUES, min_size=1, max_size=200), CLUSTERED.map(repeated))
PERCENTS = st.one_of(st.sampled_from([5, 50, 95]), st.integers(1, 100))


def spread(values: list[int]) -> Histogram:
    made = Histogram()
    for value in values:
        made.add(value)
    return made


def nearest_rank(values: list[int], percent: int) -> int:
    return sorted(values)[math.ceil(Fraction(len(values) * percent, 100)) - 1]


@given(SAMPLES, PERCENTS)
def test_a_percentile_is_within_the_promised_tolerance(values: list[int], percent: int) -> None:
    found = spread(values).percentiles(percent)[0]
    true = nearest_rank(values, percent)
    assert found is not None
    assert abs(found - true) <= max(1, TOLERANCE * true)


def test_many_at_one_end_of_a_bucket_do_not_pull_the_percentile_to_the_other() -> None:
    assert spread([512] * 99 + [543]).percentiles(95)[0] == pytest.approx(512, rel=TOLERANCE)
    assert spread([512] + [543] * 99).percentiles(5)[0] == pytest.approx(543, rel=TOLERANCE)


@given(st.lists(st.integers(0, 31), min_size=1, max_size=200), st.integers(1, 100))
def test_a_percentile_of_small_values_is_exact(values: list[int], percent: int) -> None:
    assert spread(values).percentiles(percent)[0] == nearest_rank(values, percent)


@given(VALUES, st.integers(1, 100))
def test_a_percentile_of_one_sample_is_the_sample(value: int, percent: int) -> None:
    assert spread([value]).percentiles(percent)[0] == value


@given(VALUES, st.integers(1, 50), st.integers(1, 100))
def test_a_percentile_of_equal_samples_is_the_sample(value: int, times: int, percent: int) -> None:
    assert spread([value] * times).percentiles(percent)[0] == value


@given(SAMPLES)
def test_a_higher_percentile_is_never_lower_and_all_lie_between_the_least_and_the_most(values: list[int]) -> None:
    made = spread(values)
    found = [made.percentiles(percent)[0] or 0 for percent in range(1, 101)]
    assert found == sorted(found)
    assert min(values) <= found[0]
    assert found[-1] <= max(values)


@given(SAMPLES, st.randoms(use_true_random=False))
def test_the_order_of_adding_does_not_matter(values: list[int], random) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)
    assert spread(shuffled) == spread(values)


@given(SAMPLES)
def test_the_average_is_exact(values: list[int]) -> None:
    made = spread(values)
    assert made.average() == sum(values) / len(values)
    assert (made.count, made.total, made.least, made.most) == (len(values), sum(values), min(values), max(values))


@given(st.integers(LARGEST + 1, 2**70), st.integers(-(2**70), -1))
def test_what_lies_beyond_the_bounds_counts_as_the_bound(too_large: int, negative: int) -> None:
    assert spread([too_large]) == spread([LARGEST])
    assert spread([negative]) == spread([0])
    assert spread([too_large]).percentiles(50)[0] == LARGEST


def test_of_nothing_there_is_no_average_and_no_percentile() -> None:
    assert Histogram().average() is None
    assert [Histogram().percentiles(percent)[0] for percent in (1, 50, 95, 100)] == [None] * 4


def test_two_empty_spreads_share_nothing() -> None:
    one, other = Histogram(), Histogram()
    one.add(7)
    assert other == Histogram()


@given(VALUES)
def test_a_value_lies_within_the_bounds_of_its_bucket(value: int) -> None:
    low, high = tally.bounds_of(tally.bucket_of(value))
    assert low <= value < high
    # Not wider than a sixteenth of what is in it.
    assert high - low == 1 or (high - low) * 16 <= low


def test_buckets_follow_each_other_without_gap_or_overlap() -> None:
    bounds = [tally.bounds_of(bucket) for bucket in range(tally.BUCKETS)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == LARGEST + 1
    assert [high for _, high in bounds[:-1]] == [low for low, _ in bounds[1:]]
    assert all(low < high for low, high in bounds)
