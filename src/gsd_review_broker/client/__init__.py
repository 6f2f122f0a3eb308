"""A client of a running broker: found by its runtime file, spoken to with the standard library alone."""

from gsd_review_broker.client.connection import Connection, UnreachableError
from gsd_review_broker.client.finding import Broker, Wanted, connect, find

__all__ = ["Broker", "Connection", "UnreachableError", "Wanted", "connect", "find"]
