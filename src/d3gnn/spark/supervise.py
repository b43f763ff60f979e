"""A query that is started again when the state under it was lost; the log has everything."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

#: What an error says when starting again helps: arrays that are lost, a worker that died, or the process that
#: looks for commands.
_CURABLE = (
    "StateLost", "BlocksLost", "Python worker exited unexpectedly", "Python worker failed to connect",
    "java.net.SocketException",
)  # fmt: skip


class Supervised:
    """A running query; `begin` starts it, at first and after each loss, `restarts` times at most."""

    def __init__(self, begin: Callable[[], StreamingQuery], restarts: int) -> None:
        self._begin, self._left = begin, restarts
        self.restarted = 0
        self.query = begin()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the query ends by itself, whether it did; raises what stopped it for good."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                if left is None:
                    self.query.awaitTermination()
                    return True
                # Whole seconds, and at least one, are what Spark takes.
                return bool(self.query.awaitTermination(max(1, math.ceil(left))))
            except Exception as error:
                if self._left <= 0 or not any(reason in str(error) for reason in _CURABLE):
                    raise
                self._left -= 1
                self.restarted += 1
                self.query = self._begin()

    def stop(self) -> None:
        """End the query at once; the next start does the batch again that it is in."""
        self.query.stop()
