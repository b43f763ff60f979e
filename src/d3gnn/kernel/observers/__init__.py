"""Observers: what watches the output of a part, and what of it is selected. One file each."""

from d3gnn.kernel.observers.alert_filter import AlertFilter
from d3gnn.kernel.observers.base import Observer, Predicted

__all__ = ["AlertFilter", "Observer", "Predicted"]
