"""The output of an engine: what a batch changed, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from d3gnn.events import Event, EventBatch, Key, Reason
from d3gnn.events.keys import IntKeys, Keys, StringKeys, concat_keys
from d3gnn.kernel.blocks import OUTPUT, PAIRS, Block, block_keys, block_pairs
from d3gnn.kernel.ids import KeyColumn
from d3gnn.kernel.operators.partition import PartitionedBatch
from d3gnn.runtime.output import OutputSpec
from d3gnn.types import Array, Bools, Floats, Ints, Small

if TYPE_CHECKING:
    import pandas as pd


class Update(NamedTuple):
    """A vertex's new embedding, or its tombstone."""

    id: Key
    embedding: Floats
    time: int
    arrival: int
    deleted: bool
    #: The head's prediction and its score; None without a head, NaN in tombstones.
    prediction: float | None = None
    score: float | None = None


class Pair(NamedTuple):
    """The score of two vertices: of an edge, or the answer to a query."""

    src: Key
    dst: Key
    score: float  # NaN in tombstones
    time: int
    arrival: int
    is_query: bool
    deleted: bool
    #: Whether the score is an alert; None without `alerts=` and `emit="all"`.
    is_alert: bool | None = None


@dataclass(slots=True)
class PairScores:
    """Scores of pairs, as columns; iterate for rows."""

    src: Keys
    dst: Keys
    score: Floats
    time: Ints
    arrival: Ints
    is_query: Bools
    deleted: Bools
    #: Which scores are alerts; None without `alerts=` and `emit="all"`.
    is_alert: Bools | None = None

    def __len__(self) -> int:
        return len(self.score)

    def __iter__(self) -> Iterator[Pair]:
        columns: list[Array] = [self.score, self.time, self.arrival, self.is_query, self.deleted]
        if self.is_alert is not None:
            columns.append(self.is_alert)
        rows = zip(
            self.src.to_list(), self.dst.to_list(), *(column.tolist() for column in columns), strict=True
        )
        return (Pair(*row) for row in rows)

    @staticmethod
    def of(blocks: Sequence[Block], marked: bool = False) -> PairScores:
        """From PAIRS blocks; `marked`: they have a column for alerts."""
        if not blocks:
            none, no_keys = np.zeros(0, np.int64), IntKeys(np.zeros(0, np.int64))
            no, no_scores = none > 0, np.zeros(0, np.float32)
            return PairScores(no_keys, no_keys, no_scores, none, none, no, no, no if marked else None)
        is_query, deleted, time, arrival, score = (
            np.concatenate([block.columns[c] for block in blocks]) for c in range(5)
        )
        src, dst = (concat_keys(keys) for keys in zip(*map(block_pairs, blocks), strict=True))
        pairs = PairScores(src, dst, score, time, arrival, is_query > 0, deleted > 0)
        if marked:
            pairs.is_alert = np.concatenate([block.columns[5] for block in blocks]) > 0
        return pairs


class DeadLetter(NamedTuple):
    """An event that could not be applied, and why."""

    event: Event
    reason: str


@dataclass(slots=True)
class Updates:
    """What a batch changed: one row per vertex, as columns; iterate for rows."""

    #: The number of the batch, from 0.
    batch_id: int
    ids: Keys
    embedding: Floats
    #: Newest event time, and oldest arrival, of the events behind each row.
    time: Ints
    arrival: Ints
    deleted: Bools
    #: The result of each event of the batch, as `d3gnn.events.Reason`.
    status: Small
    dead_letters: list[DeadLetter]
    #: The head's prediction and score of each row; None without a head.
    prediction: Floats | None = None
    score: Floats | None = None
    #: Scores of pairs; None without a head for pairs.
    pairs: PairScores | None = None
    #: Which rows are alerts; None without a vertex head, `alerts=` and `emit="all"`.
    is_alert: Bools | None = None
    #: The rows as blocks, and which columns they become.
    blocks: Sequence[Block] = ()
    output: OutputSpec = field(default_factory=OutputSpec)

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table, with the columns that a Spark pipeline emits; see docs/spark.md."""
        id_type = pa.int64() if isinstance(self.ids, IntKeys) else pa.string()
        return self.output.table(self.blocks, self.batch_id, id_type)

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame, with the columns of `to_arrow`."""
        return self.to_arrow().to_pandas()

    def __len__(self) -> int:
        return len(self.time)

    def __iter__(self) -> Iterator[Update]:
        columns = [self.time.tolist(), self.arrival.tolist(), self.deleted.tolist()]
        if self.prediction is not None and self.score is not None:
            columns += [self.prediction.tolist(), self.score.tolist()]
        for id, embedding, *rest in zip(self.ids.to_list(), self.embedding, *columns, strict=True):
            yield Update(id, embedding, *rest)

    def count(self, reason: Reason) -> int:
        """The number of events of the batch with this result."""
        return int(np.count_nonzero(self.status == reason))

    @staticmethod
    def of(
        batch_id: int,
        events: EventBatch,
        result: PartitionedBatch,
        blocks: list[Block],
        output: OutputSpec,
        width: int,
        keys: KeyColumn,
    ) -> Updates:
        """From the blocks of the last operator; `width` is that of the embeddings, `keys` are all ids."""
        dead = [] if result.all_applied else _dead_letters(events, result.status)
        rows = [block for block in blocks if block.kind is OUTPUT]
        columns = _vertex_columns(rows, width, keys)
        updates = Updates(batch_id, *columns, result.status, dead, blocks=blocks, output=output)
        if output.predictions and rows:
            both = np.concatenate([block.columns[4] for block in rows])
            updates.prediction, updates.score = both[:, 0], both[:, 1]
        if output.alerts and output.predictions and rows:
            updates.is_alert = np.concatenate([block.columns[5] for block in rows]).view(np.bool_)
        if output.pairs:
            pairs = [block for block in blocks if block.kind is PAIRS]
            updates.pairs = PairScores.of(pairs, marked=output.alerts)
        return updates


def _vertex_columns(
    blocks: list[Block], width: int, keys: KeyColumn
) -> tuple[Keys, Floats, Ints, Ints, Bools]:
    """Ids, embeddings, times, arrivals and tombstones of OUTPUT blocks."""
    if not blocks:
        none, no_rows = np.zeros(0, np.int64), np.zeros((0, width), np.float32)
        return StringKeys.of([]) if keys.type is StringKeys else IntKeys(none), no_rows, none, none, none > 0
    deleted, time, arrival, embedding = blocks[0].columns[:4]
    if len(blocks) > 1:
        deleted, time, arrival, embedding = (
            np.concatenate([block.columns[c] for block in blocks]) for c in range(4)
        )
    ids = concat_keys([block_keys(block) for block in blocks])
    return ids, embedding, time, arrival, deleted.view(np.bool_)


def _dead_letters(events: EventBatch, status: Small) -> list[DeadLetter]:
    bad = np.flatnonzero(status >= Reason.NULL_ID).tolist()
    reasons = (Reason(reason).text for reason in status[bad].tolist())
    return [DeadLetter(*letter) for letter in zip(events.rows(bad), reasons, strict=True)]
