"""What an observer is."""

from __future__ import annotations

from typing import NamedTuple

from d3gnn.types import Bools, Floats, Ints, Ints32


class Predicted(NamedTuple):
    """Masters whose embedding changed, with what the head predicts of them."""

    row: Ints32
    embedding: Floats
    time: Ints
    arrival: Ints
    prediction: Floats | None  # [rows, 2]: prediction and score; None without a head


class Observer:
    """Watches the output of one part. What it keeps is in the part's state, under names of its own."""

    def changed(self, changes: Predicted, rebuild: bool) -> Bools | None:
        """Rows came out. Which of them it selects; None if it does not select.

        After a `rebuild`, what was emitted before is not known any more.
        """
        return None

    def deleted(self, row: Ints32) -> Bools | None:
        """Masters were deleted. Which of them it ever selected; None if it does not select."""
        return None
