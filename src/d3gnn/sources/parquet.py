"""A Parquet file as a table of its flat columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_MAGIC = b"PAR1"


def is_parquet(path: Path) -> bool:
    """Whether the file begins as Parquet does, whatever its name."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def read_parquet(path: Path) -> tuple[Any, list[str]]:
    """The flat columns and their names; nested ones (features) can be neither an id nor a time."""
    with pq.ParquetFile(path) as file:
        flat = [
            field.name
            for field in file.schema_arrow
            if not pa.types.is_nested(field.type) and not field.name.startswith("__index_level_")
        ]
        table = file.read(columns=flat)
    plain = [column.cast(_decoded(column.type)) for column in table.columns]
    return pa.table(plain, names=flat), flat


def _decoded(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
