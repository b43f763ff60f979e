"""Prequential scores in a LocalEngine: labels are scored before their batch changes any embedding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from d3gnn.events import EventBatch
from d3gnn.kernel.blocks import LABELS, VERTICES, Block
from d3gnn.kernel.operators import OperatorConfig, Vertex
from d3gnn.kernel.operators.output_vertex import OutputState
from d3gnn.kernel.operators.partition import Partition, PartitionedBatch
from d3gnn.nn.model import GNN
from d3gnn.runtime.updates import Updates
from d3gnn.training.scoring import History, Scorer, Scoring
from d3gnn.types import Floats, Ints


class LocalScorer:
    """Follows the batches of an engine."""

    def __init__(self, settings: Scoring, model: GNN, partition: Partition, config: OperatorConfig) -> None:
        self.scorer, self._partition = Scorer(settings, model), partition
        late = settings.late
        if late is not None and config.alerts is not None and config.emit == "head":
            raise ValueError("Scoring(late=) follows all predictions: with alerts=, it needs emit='all'")
        self._history = History(late, model.out_channels) if isinstance(late, int) else None
        self._time = 0

    def before(self, events: EventBatch, result: PartitionedBatch, last: Vertex) -> None:
        """Score the labels of a batch, before its operators run."""
        if len(events):
            applied = result.entry.events.time
            self._time = max(self._time, int(applied.max(initial=self._time)))
        rows, labels, count = [], [], 0
        for block in result.blocks:
            if block.kind is not LABELS:
                continue
            row, deleted, time, _, values = block.columns
            kept = np.flatnonzero(deleted == 0)
            count += len(kept)
            kept = kept[~np.isin(row[kept], _new_rows(result.blocks, block.target))]
            found = self._at(last, block.target, row[kept], time[kept])
            known = ~np.isnan(found).any(1)
            rows.append(found[known])
            labels.append(values[kept[known], 0])
        embedding = np.concatenate(rows) if rows else np.zeros((0, last.width), np.float32)
        self.scorer.score(embedding, np.concatenate([np.zeros(0), *labels]), count, self._time)

    def _at(self, last: Vertex, part: int, row: Ints, time: Ints) -> Floats:
        """The embeddings at the times of labels; NaN where there is none."""
        now = last.values(part, row)
        if self._history is None:
            return now
        found = np.full_like(now, np.nan)
        state = last.state(part)
        assert isinstance(state, OutputState)
        for i, code in enumerate(self._partition.ids.find(state.keys.take(row)).tolist()):
            if time[i] >= self._history.newest:
                found[i] = now[i]
            elif (then := self._history.at(code, int(time[i]))) is not None:
                found[i] = then
        return found

    def after(self, updates: Updates, *, refresh: bool) -> None:
        """Remember what a batch changed. A refresh numbers ids anew: the past begins there."""
        if self._history is None:
            return
        if refresh:
            self._history = History(self._history.bound, self._history.width)
        if len(updates):
            codes = self._partition.ids.find(updates.ids).astype(np.int64)
            embedding = np.where(updates.deleted[:, None], np.float32(np.nan), updates.embedding)
            self._history.record(self._time, codes, embedding)


def _new_rows(blocks: Sequence[Block], part: int) -> Ints:
    """Rows of vertices that a batch creates in a part: they have no prediction yet."""
    rows = [block.columns[0] for block in blocks if block.kind is VERTICES and block.target == part]
    return np.concatenate(rows).astype(np.int64) if rows else np.zeros(0, np.int64)
