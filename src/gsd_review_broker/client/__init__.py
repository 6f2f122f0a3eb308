"""A client of a running broker: found by its runtime file, spoken to with the standard library alone."""

from gsd_review_broker.client.connection import Connection, UnreachableError
from gsd_review_broker.client.discovery import RunningBroker, Target, connect, find

__all__ = ["Connection", "RunningBroker", "Target", "UnreachableError", "connect", "find"]
