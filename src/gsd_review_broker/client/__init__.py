"""A client of a running broker: it finds the broker by its runtime file and uses the standard library alone."""

from gsd_review_broker.client.connection import Connection, UnreachableError
from gsd_review_broker.client.discovery import RunningBroker, Target, connect, find

__all__ = ["Connection", "RunningBroker", "Target", "UnreachableError", "connect", "find"]
