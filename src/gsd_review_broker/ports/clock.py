"""The time, as services see it."""

from typing import Protocol

from gsd_review_broker.domain.model import Milliseconds


class Clock(Protocol):
    def now(self) -> Milliseconds: ...

    def steady(self) -> Milliseconds: ...
