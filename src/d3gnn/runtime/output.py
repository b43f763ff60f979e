"""Output rows as Arrow columns: the one table that LocalEngine and Spark emit.

| output               | columns                                                                             |
|----------------------|-------------------------------------------------------------------------------------|
| no head              | id, embedding                                                                       |
| vertex head          | id, embedding, prediction, score                                                    |
| alerts, emit `head`  | the same, alerts only                                                               |
| alerts, emit `all`   | the same, all rows, and is_alert                                                    |
| pair head, `head`    | src, dst, score, is_query                                                           |
| pair head, `all`     | id, embedding, src, dst, score, is_query; each row has those of its kind, else null |
| ... with alerts      | the same, and is_alert                                                              |

All of them end with time, arrival, batch_id, model_version and deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from d3gnn.kernel.blocks import OUTPUT, PAIRS, Block, BlockKind, block_keys, block_pairs
from d3gnn.kernel.operators import ChainSpec, OperatorConfig
from d3gnn.types import Array, Ints

TIMESTAMP = pa.timestamp("us", tz="UTC")
_EMBEDDING = pa.list_(pa.field("element", pa.float32(), nullable=False))
_LAST = {
    "time": TIMESTAMP,
    "arrival": TIMESTAMP,
    "batch_id": pa.int64(),
    "model_version": pa.int64(),
    "deleted": pa.bool_(),
}
#: Where the columns of a block are that its row counts need: deleted and arrival.
_DELETED = {OUTPUT: 0, PAIRS: 1}
_ARRIVAL = {OUTPUT: 2, PAIRS: 3}


@dataclass(frozen=True)
class OutputSpec:
    """Which rows a pipeline emits, and with which columns."""

    #: Rows of vertices, and whether they have predictions, and a flag for alerts.
    vertices: bool = True
    predictions: bool = False
    alerts: bool = False
    #: Rows of pairs.
    pairs: bool = False

    @staticmethod
    def of(chain: ChainSpec, config: OperatorConfig) -> OutputSpec:
        """The output of a chain of operators with these settings."""
        everything = config.emit == "all"
        return OutputSpec(
            vertices=everything or not chain.pairs,
            predictions=chain.predicts,
            alerts=everything and config.alerts is not None,
            pairs=chain.pairs,
        )

    @cached_property
    def kinds(self) -> frozenset[BlockKind]:
        """The kinds of blocks that become rows."""
        wanted = {OUTPUT: self.vertices, PAIRS: self.pairs}
        return frozenset(kind for kind, is_wanted in wanted.items() if is_wanted)

    def schema(self, id_type: pa.DataType) -> pa.Schema:
        """The columns, in order, for ids of this type."""
        columns: dict[str, pa.DataType] = {}
        if self.vertices:
            columns |= {"id": id_type, "embedding": _EMBEDDING}
        if self.predictions:
            columns |= {"prediction": pa.float32(), "score": pa.float32()}
        if self.pairs:
            columns |= {"src": id_type, "dst": id_type, "score": pa.float32(), "is_query": pa.bool_()}
        if self.alerts:
            columns |= {"is_alert": pa.bool_()}
        return pa.schema(columns | _LAST)

    def table(self, blocks: Iterable[Block], batch_id: int, id_type: pa.DataType) -> pa.Table:
        """The rows of the blocks that leave the chain, as one table, of a model that is never replaced."""
        return pa.Table.from_batches(self.batches(blocks, batch_id, 1), self.schema(id_type))

    def batches(
        self, blocks: Iterable[Block], batch_id: int, model_version: int, *, most: int = 1 << 30
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the blocks that leave the chain, in record batches of at most `most` rows."""
        for block in blocks:
            if block.kind not in self.kinds:
                continue
            ids = block_pairs(block) if block.kind == PAIRS else (block_keys(block),)
            keys = [_plain(column.to_arrow()) for column in ids]
            schema = self.schema(keys[0].type)
            for begin in range(0, len(block), most):
                n = min(most, len(block) - begin)
                some = [column[begin : begin + n] for column in block.columns]
                names = [key.slice(begin, n) for key in keys]
                found = self._pair_columns(names, some) if block.kind == PAIRS else self._columns(names, some)
                found["batch_id"] = pa.array(np.full(n, batch_id, np.int64))
                found["model_version"] = pa.array(np.full(n, model_version, np.int64))
                arrays = [
                    found[field.name] if field.name in found else pa.nulls(n, field.type) for field in schema
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _columns(self, names: list[pa.Array], columns: list[Array]) -> dict[str, Any]:
        deleted, time, arrival, embedding, *more = columns[:-1]
        n, width = embedding.shape
        offsets = pa.array(np.arange(0, (n + 1) * width, width, dtype=np.int32))
        rows = {
            "id": names[0],
            "embedding": pa.ListArray.from_arrays(offsets, pa.array(embedding.reshape(-1)), type=_EMBEDDING),
            "time": _times(time),
            "arrival": _times(arrival),
            "deleted": pa.array(deleted > 0),
        }
        if self.predictions:
            rows |= {name: _or_null(more[0][:, i]) for i, name in enumerate(("prediction", "score"))}
        if self.alerts and self.predictions:
            rows["is_alert"] = pa.array(more[1] > 0)
        return rows

    def _pair_columns(self, names: list[pa.Array], columns: list[Array]) -> dict[str, Any]:
        is_query, deleted, time, arrival, score = columns[:5]
        rows = {
            "src": names[0],
            "dst": names[1],
            "score": _or_null(score),
            "is_query": pa.array(is_query > 0),
            "time": _times(time),
            "arrival": _times(arrival),
            "deleted": pa.array(deleted > 0),
        }
        if self.alerts:
            rows["is_alert"] = pa.array(columns[5] > 0)
        return rows


def row_counts(blocks: Iterable[Block]) -> tuple[int, int, list[Ints]]:
    """Rows and tombstones among these blocks of output, and their arrivals, block by block."""
    rows, tombstones, arrivals = 0, 0, []
    for block in blocks:
        rows += len(block)
        tombstones += int((block.columns[_DELETED[block.kind]] > 0).sum())
        arrivals.append(block.columns[_ARRIVAL[block.kind]])
    return rows, tombstones, arrivals


def _times(microseconds: Array) -> pa.Array:
    return pa.array(microseconds, pa.int64()).cast(TIMESTAMP)


def _or_null(numbers: Array) -> pa.Array:
    return pa.array(numbers, from_pandas=True)  # NaN is null


def _plain(ids: pa.Array) -> pa.Array:
    return ids.cast(pa.string()) if pa.types.is_large_string(ids.type) else ids
