"""A set of ids, and where a file names them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from d3gnn.events import Key
from d3gnn.types import Bools

#: Columns of ids: in logs and dead letters, and in output tables.
_ID_COLUMNS = ("src", "dst", "id")
_LETTER = rb"[0-9A-Za-z_\-\x80-\xff]"
_WORD = re.compile(_LETTER + rb"+")
_LEAST, _GREATEST = -(2**63), 2**63 - 1


class NamedIds:
    """Ids to look for. An integer is the same id as its digits: dead letters hold ids of either type.

    >>> ids = NamedIds(["ann", "7"])
    >>> ids.in_column(pa.array(["ann", "anna", None])).tolist(), ids.in_column(pa.array([7, 8])).tolist()
    ([True, False, False], [True, False])
    """

    def __init__(self, ids: Iterable[Key]) -> None:
        self._texts = sorted({str(id) for id in ids})
        numbers = (int(text) for text in self._texts if re.fullmatch(r"-?[0-9]{1,19}", text))
        self._ints = [n for n in numbers if _LEAST <= n <= _GREATEST and str(n) in self._texts]

    def __len__(self) -> int:
        return len(self._texts)

    def in_column(self, column: pa.Array | pa.ChunkedArray) -> Bools:
        """Which cells of a column are one of the ids; none in columns of other types."""
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_integer(column.type):
            values = pa.array(self._ints, pa.int64()).cast(column.type, safe=False)
        elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            values = pa.array(self._texts, column.type)
        else:
            return np.zeros(len(column), np.bool_)
        found = pc.is_in(column, value_set=values)
        return np.asarray(found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found, np.bool_)

    def in_rows(self, table: pa.Table) -> Bools:
        """Which rows of a table name one of the ids."""
        found = np.zeros(len(table), np.bool_)
        for name in _ID_COLUMNS:
            if name in table.column_names:
                found |= self.in_column(table[name])
        return found

    def in_parquet(self, source: pa.NativeFile | str) -> int:
        """How many rows of a Parquet file name one of the ids; 1 if only what is stored beside the rows does:
        dictionaries and statistics.
        """
        with pq.ParquetFile(source) as file:
            names = [name for name in _ID_COLUMNS if name in file.schema_arrow.names]
            rows = int(np.count_nonzero(self.in_rows(file.read(columns=names))))
        if rows or not names:
            return rows
        with pq.ParquetFile(source, read_dictionary=names) as file:
            chunks = [chunk for column in file.read(columns=names).columns for chunk in column.chunks]
            beside = [chunk.dictionary for chunk in chunks if pa.types.is_dictionary(chunk.type)]
            beside += _statistics(file.metadata, names)
        return int(any(self.in_column(values).any() for values in beside))

    def in_text(self, content: bytes) -> bool:
        """Whether a file of another format has one of the ids, not as a part of a longer word."""
        if not self._words.isdisjoint(_WORD.findall(content)):
            return True
        return self._phrases is not None and self._phrases.search(content) is not None

    @cached_property
    def _words(self) -> set[bytes]:
        return {text.encode() for text in self._texts if _WORD.fullmatch(text.encode())}

    @cached_property
    def _phrases(self) -> re.Pattern[bytes] | None:
        """Ids of several words. An empty one would be in every file."""
        phrases = [re.escape(t.encode()) for t in self._texts if t and t.encode() not in self._words]
        if not phrases:
            return None
        return re.compile(rb"(?<!" + _LETTER + rb")(?:" + b"|".join(phrases) + rb")(?!" + _LETTER + rb")")


def _statistics(metadata: pq.FileMetaData, names: list[str]) -> Iterable[pa.Array]:
    """The least and the greatest value of each of these columns in each row group, where they are stored."""
    for group in range(metadata.num_row_groups):
        for i in range(metadata.num_columns):
            column = metadata.row_group(group).column(i)
            statistics = column.statistics
            if column.path_in_schema in names and statistics is not None and statistics.has_min_max:
                yield pa.array([statistics.min, statistics.max])
