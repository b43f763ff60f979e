"""A streaming query that starts again when a process under it died; the graph log has everything it needs."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from d3gnn.kernel.mapped_state import seal
from d3gnn.kernel.operators import PARTITION
from d3gnn.spark.commands import PipelineCommands
from d3gnn.store.epochs import Epochs
from d3gnn.store.store import Store
from d3gnn.whole_numbers import check_whole

if TYPE_CHECKING:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql.streaming.query import StreamingQuery

#: Parts of the messages of errors that a restart cures: lost state, a dead Python worker, or a dead
#: process of the control source.
_CURABLE = (
    "StateLost", "BlocksLost", "Python worker exited unexpectedly", "Python worker failed to connect",
    "java.net.SocketException",
)  # fmt: skip


#: And of those that it cures on a cluster, perhaps after a while.
_CURABLE_ON_CLUSTER = (
    *_CURABLE, "ExecutorLostFailure", "FetchFailed", "StoreUnreachable", "StoreFull", "NoSpaceLeft",
    "No space left on device", "HomesError",
)  # fmt: skip
#: On a cluster: seconds before the first restart, and the most before a later one.
_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
log = logging.getLogger("d3gnn")


class RestartingQuery(PipelineCommands):
    """What `StreamingGNN.start` returns: answers like pyspark's `StreamingQuery`, and restarts by itself.

    A query that failed because state or a process was lost starts again, at most `restarts` times, as soon as
    it is looked at: by `awaitTermination`, or by any property below. `refresh`, `drain` and `pending` are
    commands to the pipeline.

    On a cluster, where hosts come and go, a run that has processed a batch does not count, a restart waits
    for a moment, and it is tried again if the cluster or the store cannot be reached.
    """

    def __init__(
        self,
        begin: Callable[[], StreamingQuery],
        restarts: int,
        *,
        store: str = "",
        arrays: str = "",
        on_cluster: bool = False,
    ) -> None:
        check_whole("restarts", restarts, least=0)
        self._begin, self._store, self._arrays = begin, store, arrays
        self._on_cluster, self._in_a_row = on_cluster, 0
        #: How many restarts are allowed, and how many there were.
        self.restarts, self.restarted = restarts, 0
        self._stopped = False
        #: Held by the thread that restarts or stops the query; others may wait for it or look at it
        #: meanwhile.
        self._lock = Lock()
        self._query = begin()

    def __repr__(self) -> str:
        state = "active" if self.isActive else "ended"
        return f"RestartingQuery(id={self.id}, name={self.name!r}, {state}, restarted={self.restarted})"

    # ------------------------------------------------------------------ as pyspark's StreamingQuery

    @property
    def id(self) -> str:
        """Identifies the query. It is kept in the checkpoint, so that a restart does not change it."""
        return self._query.id

    @property
    def runId(self) -> str:  # noqa: N802
        """Identifies this run of the query. Every restart changes it."""
        return self._current().runId

    @property
    def name(self) -> str:
        """The query's name in Spark: that of the pipeline, unless `start` named another."""
        return self._query.name or ""

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether the query runs."""
        return self._current().isActive

    @property
    def status(self) -> dict[str, Any]:
        """What the query does now: `message`, `isDataAvailable` and `isTriggerActive`."""
        return self._current().status

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        """The progress of the newest batch, or None; `d3gnn.metrics` reads the operators' metrics in it."""
        return self._current().lastProgress

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802
        """The progress of the last batches of this run."""
        return list(self._current().recentProgress)

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait until the query ends. Raises the error that ended it, unless a restart cures it.

        With `timeout`, in seconds, returns whether the query has ended by then.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            query = self._query
            try:
                if deadline is None:
                    query.awaitTermination()
                    self._seal()
                    return None
                # Spark waits for whole seconds, and at least for one.
                left = max(1, math.ceil(deadline - time.monotonic()))
                if ended := bool(query.awaitTermination(left)):
                    self._seal()
                return ended
            except Exception as error:
                self._restart(query, error)

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until everything that the source has now is processed. For tests."""
        while True:
            query = self._query
            try:
                return query.processAllAvailable()
            except Exception as error:
                self._restart(query, error)

    def exception(self) -> StreamingQueryException | None:
        """The error that ended the query, or None."""
        return self._current().exception()

    def explain(self, extended: bool = False) -> None:
        """Print the plan of the newest batch."""
        self._current().explain(extended)

    def stop(self) -> None:
        """Stop the query now. The next start repeats the batch that it is in."""
        self._stopped = True
        with self._lock:
            self._query.stop()
            self._seal()

    # ------------------------------------------------------------------

    def _seal(self) -> None:
        """Make damage to Partition's arrays, which decide events, noticeable to the next start.

        Where the query ran on other hosts, there are none here.
        """
        if self._arrays:
            with suppress(OSError, RuntimeError):
                seal(Path(self._arrays) / self._query.id / str(PARTITION) / "0")

    def _folders(self) -> tuple[str, str]:
        return self._store, self._arrays

    def _current(self) -> StreamingQuery:
        """The query as it runs now, after a restart if it needs one and may have one."""
        query = self._query
        if not query.isActive and not self._stopped:
            try:
                # A query counts as inactive a little before its error is known: this waits for it.
                query.awaitTermination()
            except Exception as error:
                if self._is_curable(error):
                    self._restart(query, error)
        return self._query

    def _is_curable(self, error: Exception) -> bool:
        return not self._stopped and self._in_a_row < self.restarts and bool(self._cause(error))

    def _cause(self, error: Exception) -> str:
        """What a restart cures of an error, in one line; empty if it cures nothing."""
        reasons: tuple[str, ...] = _CURABLE
        text = f"{type(error).__name__}: {error}"
        if self._on_cluster:  # Spark's own errors are deep in the stack
            reasons, text = _CURABLE_ON_CLUSTER, f"{text}\n{getattr(error, '_stackTrace', '')}"
        found = [line for line in text.splitlines() if any(reason in line for reason in reasons)]
        return min(found, key=len).strip()[:500] if found else ""

    def _restart(self, failed: StreamingQuery, error: Exception) -> None:
        """Start the query again, unless another thread has; or raise the error that ended it."""
        with self._lock:
            if self._query is not failed:
                return
            if self._on_cluster and any(failed.recentProgress):
                self._in_a_row = 0
            while True:
                if not self._is_curable(error):
                    self._seal()
                    raise error
                self._in_a_row += 1
                self.restarted += 1
                if self._on_cluster:
                    log.warning(
                        "%s has failed and starts again (%d of %d in a row): %s",
                        failed.name, self._in_a_row, self.restarts, self._cause(error),
                    )  # fmt: skip
                    time.sleep(min(_LONGEST_PAUSE, _PAUSE * 2 ** (self._in_a_row - 1)))
                try:
                    if self._on_cluster:  # else a folder that is not mounted would become a new store
                        Epochs(Store(self._store)).require_store()
                    self._query = self._begin()
                    return
                except Exception as again:
                    error = again
