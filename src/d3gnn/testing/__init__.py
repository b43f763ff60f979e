"""Streams of events to test with; needs hypothesis."""

from d3gnn.testing.streams import event_batches, random_batches, schemas

__all__ = ["event_batches", "random_batches", "schemas"]
