"""The demo without Spark."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import numpy as np

from d3gnn.bench.check import Comparison, compare
from d3gnn.bench.result import OnProgress
from d3gnn.bench.warm_up import warm_up
from d3gnn.cli.demo.job import Job, Snapshot
from d3gnn.cli.reports import BatchReport
from d3gnn.events import Reason
from d3gnn.events.keys import IntKeys
from d3gnn.runtime.local import LocalEngine


class LocalRun:
    """Runs a job on a `LocalEngine`."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._engine = LocalEngine(
            job.model, parts=job.parts, partitioner=job.partitioner, schema=job.stream.schema
        )
        self._before = _snapshot(self._engine)

    def warm_up(self) -> None:
        """Compile before the clock starts."""
        import torch

        torch.set_num_threads(1)
        warm_up(self._job.model, self._job.stream.schema, self._job.parts, self._job.partitioner)

    def batches(self) -> Iterator[list[BatchReport]]:
        for number, batch in enumerate(self._job.batches()):
            if number == self._job.first_watched:
                self._before = _snapshot(self._engine)
            begun = time.perf_counter()
            updates = self._engine.apply(batch)
            seconds = time.perf_counter() - begun
            codes, counts = np.unique(updates.status, return_counts=True)
            reasons = {Reason(code): n for code, n in zip(codes.tolist(), counts.tolist(), strict=True)}
            report = BatchReport(
                number=number,
                events=len(batch),
                milliseconds=seconds * 1e3,
                rows=len(updates),
                tombstones=int(np.count_nonzero(updates.deleted)),
                late=reasons.get(Reason.LATE, 0),
                dead=Counter({reason.text: n for reason, n in reasons.items() if reason.is_dead}),
                lag=None,
            )
            yield [report]

    def snapshots(self) -> tuple[Snapshot, Snapshot]:
        return self._before, _snapshot(self._engine)

    def compare(self, report: OnProgress) -> Comparison:
        return compare(self._engine, self._job.stream.batches(self._job.batch), report)


def _snapshot(engine: LocalEngine) -> Snapshot:
    keys = engine.ids()
    ids = np.sort(keys.values) if isinstance(keys, IntKeys) else np.zeros(0, np.int64)
    return Snapshot(ids, engine.embeddings(IntKeys(ids)))
