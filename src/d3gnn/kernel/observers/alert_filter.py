"""The alert filter: selects the predictions that are alerts."""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.alerts import LAPSED, Alerts
from d3gnn.kernel.observers.base import Observer, Predicted
from d3gnn.kernel.part_state import PartState
from d3gnn.types import Bools, Ints32


class AlertFilter(Observer):
    """Remembers the last alert of each master, so that a changed class and a deletion are recognised."""

    def __init__(self, alerts: Alerts, part_state: PartState) -> None:
        self._alerts = alerts
        #: By row: the class plus 1 of the last alert, or 1 where classes do not matter; 0 for none.
        self._last = part_state.array("last_alert", np.int32)

    def changed(self, changes: Predicted, rebuild: bool) -> Bools:
        assert changes.prediction is not None
        last = self._rows(changes.row)
        if rebuild:  # any of these may have been an alert before
            last[changes.row] = LAPSED
        return self._alerts.select(changes.prediction, changes.row, last)

    def deleted(self, row: Ints32) -> Bools:
        last = self._rows(row)
        was_alert: Bools = last[row] != 0
        last[row] = 0
        return was_alert

    def _rows(self, row: Ints32) -> Ints32:
        if len(row):
            self._last.reserve(int(row.max()) + 1)
        rows: Ints32 = self._last.data
        return rows
