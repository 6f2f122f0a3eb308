"""The pool's policy: whatever happens, it stays within its limits, gets on, and goes home."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gsd_review_broker.domain.model import Identity, Milliseconds
from gsd_review_broker.domain.pool import EndReason
from gsd_review_broker.pool.policy import (
    LONGEST_PAUSE,
    Drain,
    End,
    PoolLimits,
    PoolMember,
    Situation,
    Spawn,
    decide,
    hindrance,
    is_wanted,
    may_spawn_at,
    next_look,
    pause_after,
)

MINUTE = 60_000
LIMITS = PoolLimits()


def at(now: int) -> Milliseconds:
    return Milliseconds(now)


def reviewer(name: str, *, busy: bool = False, since: int = 0, **fields: object) -> PoolMember:
    given: dict[str, object] = {
        "id": Identity(name),
        "started_at": at(since),
        "free_since": None if busy else at(since),
    }
    return PoolMember(**{**given, **fields})  # type: ignore[arg-type]


def situation(pending: int, *reviewers: PoolMember, now: int = 1_000, **fields: object) -> Situation:
    return Situation(pending=pending, reviewers=reviewers, now=at(now), **fields)  # type: ignore[arg-type]


limits_strategy = st.builds(
    PoolLimits,
    max_pool_size=st.integers(1, 10),
    scaling_ratio=st.floats(1, 10),
    spawn_cooldown=st.integers(1_000, 30_000),
    idle_timeout=st.integers(60_000, 600_000),
    max_ttl=st.integers(300_000, 7_200_000),
    overtime=st.integers(60_000, 1_200_000),
    failure_pause=st.integers(1_000, 30_000),
)
NOW = 10_000_000
moments = st.integers(0, NOW).map(at)
seen_strategy = st.builds(
    PoolMember,
    id=st.uuids().map(lambda value: Identity(str(value))),
    started_at=moments,
    free_since=st.none() | moments,
    draining_since=st.none() | moments,
    ending=st.booleans(),
    lost_a_claim=st.booleans(),
)
situation_strategy = st.builds(
    Situation,
    pending=st.integers(0, 50),
    reviewers=st.lists(seen_strategy, max_size=12).map(tuple),
    now=st.just(at(NOW)),
    paused=st.booleans(),
    last_spawn_at=st.none() | moments,
    failures_in_a_row=st.integers(0, 10),
    last_failure_at=st.none() | moments,
    spawns_today=st.integers(0, 250),
    tokens_today=st.integers(0, 1_000),
)


@given(situation_strategy, limits_strategy)
def test_no_decision_goes_over_the_cap_or_comes_within_the_cooldown(now: Situation, limits: PoolLimits) -> None:
    spawns = [action for action in decide(now, limits) if isinstance(action, Spawn)]
    assert len(spawns) <= 1
    if spawns:
        assert now.pending > 0
        assert not now.paused
        assert len(now.reviewers) < limits.max_pool_size
        assert now.spawns_today < limits.max_spawns_per_day
        assert now.last_spawn_at is None or now.now - now.last_spawn_at >= limits.spawn_cooldown


@given(situation_strategy, limits_strategy)
def test_work_and_room_and_nobody_active_always_lead_to_a_start(now: Situation, limits: PoolLimits) -> None:
    active = [one for one in now.reviewers if one.is_active]
    blocked = hindrance(now, limits)
    if now.pending and not active and blocked is None:
        assert Spawn() in decide(now, limits)
    if now.pending and not active and blocked == "pause":
        # It waits for a moment that comes, and looks again then.
        moment = may_spawn_at(now, limits)
        assert now.now < moment <= now.now + max(limits.spawn_cooldown, LONGEST_PAUSE)
        assert next_look(now, limits) <= moment
        later = replace(now, now=at(moment))
        assert Spawn() in decide(later, limits)


@given(situation_strategy, limits_strategy)
def test_each_reviewer_is_decided_about_at_most_once_and_never_while_it_ends(
    now: Situation, limits: PoolLimits
) -> None:
    named = [action.reviewer for action in decide(now, limits) if not isinstance(action, Spawn)]
    assert len(named) == len(set(named))
    assert not {one.id for one in now.reviewers if one.ending} & set(named)


@given(situation_strategy, limits_strategy)
def test_the_next_look_is_in_the_future_and_not_far_off(now: Situation, limits: PoolLimits) -> None:
    assert now.now < next_look(now, limits) <= now.now + limits.check_interval


class _World:
    """Reviewers that do as they are told, a queue, and a clock."""

    def __init__(self, limits: PoolLimits) -> None:
        self.limits = limits
        self.now = 0
        self.pending = 0
        self.reviewers: dict[str, PoolMember] = {}
        self.spawned_at: list[int] = []
        self.largest = 0

    def look(self) -> None:
        last = self.spawned_at[-1] if self.spawned_at else None
        seen = Situation(
            pending=self.pending,
            reviewers=tuple(self.reviewers.values()),
            now=at(self.now),
            last_spawn_at=None if last is None else at(last),
        )
        for action in decide(seen, self.limits):
            match action:
                case Spawn():
                    name = f"r{len(self.spawned_at)}"
                    self.reviewers[name] = reviewer(name, since=self.now)
                    self.spawned_at.append(self.now)
                case Drain(name, _):
                    self.reviewers[name] = replace(self.reviewers[name], draining_since=at(self.now))
                case End(name, _):
                    del self.reviewers[name]
        self.largest = max(self.largest, len(self.reviewers))

    def work(self, turn: int) -> None:
        """The busy finish, the free claim."""
        for name, one in list(self.reviewers.items()):
            if one.free_since is None and (turn + int(name[1:])) % 3 == 0:
                self.reviewers[name] = replace(one, free_since=at(self.now))
            elif one.is_active and one.free_since is not None and self.pending:
                self.pending -= 1
                self.reviewers[name] = replace(one, free_since=None)


@settings(max_examples=40)
@given(limits_strategy, st.lists(st.integers(0, 12), min_size=1, max_size=30))
def test_any_history_of_work_is_done_within_the_limits_and_ends_with_nobody(
    limits: PoolLimits, arrivals: list[int]
) -> None:
    world = _World(limits)
    turn = 0
    while arrivals or world.pending or world.reviewers:
        world.pending += arrivals.pop() if arrivals else 0
        world.look()
        world.work(turn)
        turn += 1
        world.now += 1_000
        assert turn < 20_000, (world.pending, world.reviewers)
    assert world.largest <= limits.max_pool_size
    gaps = [later - earlier for earlier, later in zip(world.spawned_at, world.spawned_at[1:], strict=False)]
    assert all(gap >= limits.spawn_cooldown for gap in gaps)


def test_one_reviewer_is_for_three_reviews_and_the_fourth_starts_another() -> None:
    assert decide(situation(1), LIMITS) == [Spawn()]
    assert decide(situation(3, reviewer("a")), LIMITS) == []
    assert decide(situation(4, reviewer("a")), LIMITS) == [Spawn()]
    assert decide(situation(7, reviewer("a"), reviewer("b")), LIMITS) == [Spawn()]


def test_what_a_busy_reviewer_holds_does_not_count_as_waiting() -> None:
    assert not is_wanted(situation(3, reviewer("a", busy=True)), LIMITS)
    assert is_wanted(situation(4, reviewer("a", busy=True)), LIMITS)
    assert not is_wanted(situation(3, reviewer("a")), LIMITS)


def test_a_busy_reviewer_is_not_idle_however_long_it_takes() -> None:
    long = situation(0, reviewer("a", busy=True), now=LIMITS.max_ttl - 1)
    assert decide(long, LIMITS) == []


def test_an_idle_reviewer_is_drained_and_then_ended() -> None:
    idle = reviewer("a")
    assert decide(situation(0, idle, now=LIMITS.idle_timeout), LIMITS) == [Drain(idle.id, EndReason.IDLE)]
    drained = replace(idle, draining_since=at(LIMITS.idle_timeout))
    soon = LIMITS.idle_timeout + LIMITS.farewell
    assert decide(situation(0, drained, now=soon - 1), LIMITS) == []
    assert decide(situation(0, drained, now=soon), LIMITS) == [End(idle.id)]


def test_after_its_time_a_reviewer_may_finish_what_it_holds_but_not_for_ever() -> None:
    busy = reviewer("a", busy=True)
    assert decide(situation(0, busy, now=LIMITS.max_ttl), LIMITS) == [Drain(busy.id, EndReason.TTL)]
    drained = replace(busy, draining_since=at(LIMITS.max_ttl))
    late = LIMITS.max_ttl + LIMITS.overtime
    assert decide(situation(0, drained, now=late - 1), LIMITS) == []
    assert decide(situation(0, drained, now=late), LIMITS) == [End(busy.id, EndReason.HUNG)]
    # When it has finished, it has a moment to go by itself.
    finished = replace(drained, free_since=at(late - 1))
    assert decide(situation(0, finished, now=late), LIMITS) == []
    assert decide(situation(0, finished, now=late - 1 + LIMITS.farewell), LIMITS) == [End(busy.id)]


def test_one_that_let_its_claim_run_out_is_ended() -> None:
    assert decide(situation(0, reviewer("a", lost_a_claim=True)), LIMITS) == [End(Identity("a"), EndReason.HUNG)]


def test_a_draining_reviewer_takes_room_but_is_not_active() -> None:
    small = replace(LIMITS, max_pool_size=1)
    draining = reviewer("a", busy=True, draining_since=at(0))
    assert decide(situation(5, draining), small) == []
    assert decide(situation(5, draining), LIMITS) == [Spawn()]


def test_pauses_grow_and_have_an_end() -> None:
    pauses = [pause_after(failures, LIMITS) for failures in range(12)]
    assert pauses[:5] == [0, 10_000, 20_000, 40_000, 80_000]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE == pause_after(10_000, LIMITS)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"paused": True}, "paused"),
        ({"spawns_today": 200}, "spawns"),
        ({"tokens_today": 1_000}, "tokens"),
        ({"last_spawn_at": 0}, "pause"),
        ({"last_failure_at": 0, "failures_in_a_row": 1}, "pause"),
    ],
)
def test_what_hinders_a_start_is_named(fields: dict[str, object], why: str) -> None:
    capped = replace(LIMITS, max_tokens_per_day=1_000)
    assert hindrance(situation(1, **fields), capped) == why
    assert decide(situation(1, **fields), capped) == []
    assert hindrance(situation(1), capped) is None


def test_the_cooldown_holds_to_the_millisecond() -> None:
    started = situation(9, reviewer("a"), last_spawn_at=at(1_000), now=1_000 + LIMITS.spawn_cooldown - 1)
    assert hindrance(started, LIMITS) == "pause"
    assert decide(started, LIMITS) == []
    assert next_look(started, LIMITS) == 1_000 + LIMITS.spawn_cooldown
    over = replace(started, now=at(1_000 + LIMITS.spawn_cooldown))
    assert hindrance(over, LIMITS) is None
    assert decide(over, LIMITS) == [Spawn()]


def test_the_pause_after_failures_holds_to_the_millisecond() -> None:
    failed = situation(9, last_failure_at=at(0), failures_in_a_row=3, now=40_000 - 1)
    assert decide(failed, LIMITS) == []
    assert decide(replace(failed, now=at(40_000)), LIMITS) == [Spawn()]
