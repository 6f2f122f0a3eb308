"""When to start, drain and stop reviewers: a pure function of the present state. Times are milliseconds of a steady
clock.
"""

from dataclasses import dataclass
from typing import Literal

from gsd_review_broker.domain.model import Identity, Milliseconds
from gsd_review_broker.domain.words import EndReason

# The limit for a crash loop: one try in a quarter of an hour.
LONGEST_PAUSE = 900_000


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolLimits:
    max_pool_size: int
    scaling_ratio: float
    spawn_cooldown: int
    idle_timeout: int
    max_ttl: int
    # A drained reviewer may take this long to finish what it holds.
    overtime: int
    # A reviewer without a review may take this long to exit by itself and report what it spent. Not a setting.
    exit_grace: int = 5_000
    failure_pause: int
    max_spawns_per_day: int
    max_tokens_per_day: int | None
    check_interval: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolMember:
    """A reviewer whose process is running."""

    id: Identity
    started_at: Milliseconds
    # Since when it holds no review; None while it holds one: a busy reviewer is neither idle nor free capacity.
    free_since: Milliseconds | None
    draining_since: Milliseconds | None = None
    # It was told to stop and is still running: it takes room, and nothing more is decided about it.
    ending: bool = False
    # Its claim was taken back at the deadline while it ran.
    lost_a_claim: bool = False

    @property
    def is_active(self) -> bool:
        return self.draining_since is None and not self.ending


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    pending: int
    reviewers: tuple[PoolMember, ...]
    now: Milliseconds
    paused: bool = False
    last_spawn_at: Milliseconds | None = None
    failures_in_a_row: int = 0
    last_failure_at: Milliseconds | None = None
    spawns_today: int = 0
    tokens_today: int = 0


@dataclass(frozen=True, slots=True)
class Spawn:
    pass


@dataclass(frozen=True, slots=True)
class Drain:
    """It gets no new claim, and may finish what it holds."""

    reviewer: Identity
    reason: EndReason


@dataclass(frozen=True, slots=True)
class End:
    """Without a reason: the reason for which it was drained."""

    reviewer: Identity
    reason: EndReason | None = None


Action = Spawn | Drain | End
Hindrance = Literal["paused", "spawns", "tokens", "room", "pause"]


def pause_after(failures: int, limits: PoolLimits) -> int:
    """Return the pause, which each failure doubles."""
    if failures <= 0:
        return 0
    return min(LONGEST_PAUSE, limits.failure_pause * 2 ** min(failures - 1, 20))


def decide(situation: Situation, limits: PoolLimits) -> list[Action]:
    actions = [action for one in situation.reviewers if (action := _of(one, situation.now, limits))]
    if is_wanted(situation, limits) and hindrance(situation, limits) is None:
        actions.append(Spawn())
    return actions


def _of(one: PoolMember, now: Milliseconds, limits: PoolLimits) -> Action | None:
    if one.ending:
        return None
    if one.lost_a_claim:
        return End(one.id, EndReason.HUNG)
    if one.draining_since is not None:
        if one.free_since is None:
            return End(one.id, EndReason.HUNG) if now - one.draining_since >= limits.overtime else None
        return End(one.id) if now - max(one.draining_since, one.free_since) >= limits.exit_grace else None
    if now - one.started_at >= limits.max_ttl:
        return Drain(one.id, EndReason.TTL)
    if one.free_since is not None and now - one.free_since >= limits.idle_timeout:
        return Drain(one.id, EndReason.IDLE)
    return None


def is_wanted(situation: Situation, limits: PoolLimits) -> bool:
    """Return whether more reviews wait than the active reviewers can take. A claimed review does not wait."""
    active = sum(one.is_active for one in situation.reviewers)
    return situation.pending > limits.scaling_ratio * active


def hindrance(situation: Situation, limits: PoolLimits) -> Hindrance | None:
    """Say why no reviewer may be started now."""
    if situation.paused:
        return "paused"
    if situation.spawns_today >= limits.max_spawns_per_day:
        return "spawns"
    if limits.max_tokens_per_day is not None and situation.tokens_today >= limits.max_tokens_per_day:
        return "tokens"
    if len(situation.reviewers) >= limits.max_pool_size:
        return "room"
    if situation.now < may_spawn_at(situation, limits):
        return "pause"
    return None


def may_spawn_at(situation: Situation, limits: PoolLimits) -> int:
    """Return the end of the cooldown, and of the pause for failures."""
    moments = [situation.now]
    if situation.last_spawn_at is not None:
        moments.append(Milliseconds(situation.last_spawn_at + limits.spawn_cooldown))
    if situation.last_failure_at is not None:
        pause = pause_after(situation.failures_in_a_row, limits)
        moments.append(Milliseconds(situation.last_failure_at + pause))
    return max(moments)


def next_look(situation: Situation, limits: PoolLimits) -> int:
    """Return when the next decision may be due even if nothing happens until then."""
    moments = [situation.now + limits.check_interval]
    if is_wanted(situation, limits):
        moments.append(may_spawn_at(situation, limits))
    for one in situation.reviewers:
        if one.draining_since is not None:
            if one.free_since is None:
                moments.append(one.draining_since + limits.overtime)
            else:
                moments.append(max(one.draining_since, one.free_since) + limits.exit_grace)
        else:
            moments.append(one.started_at + limits.max_ttl)
            if one.free_since is not None:
                moments.append(one.free_since + limits.idle_timeout)
    return min((moment for moment in moments if moment > situation.now), default=situation.now + limits.check_interval)
