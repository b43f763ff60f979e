"""Streams of events to test with, and a witness that compares with the oracle; needs hypothesis."""

from d3gnn.testing.compare import Witness
from d3gnn.testing.streams import event_batches, random_batches, schemas

__all__ = ["Witness", "event_batches", "random_batches", "schemas"]
