"""The first rows of files: their format, their columns, and the Spark types that read them."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from d3gnn.sources.errors import EdgeListError
from d3gnn.sources.parquet import is_parquet
from d3gnn.sources.text import Text, read_text, sample_lines

Format = Literal["csv", "json", "parquet", "text"]
FORMAT_NAMES: dict[Format, str] = {
    "csv": "CSV", "json": "JSON", "parquet": "Parquet", "text": "text between white space",
}  # fmt: skip
#: Formats whose files have the same columns on all lines.
TEXTS = ("csv", "text")
#: Times in nanoseconds, for which Spark needs a setting.
NANOSECONDS = "nanoseconds"
#: The type as which Spark reads unsigned integers of 64 bits.
UNSIGNED = "decimal(20,0)"

_ENDINGS: dict[str, Format] = {
    ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet",
}  # fmt: skip
_OTHER_COMPRESSION = {".bz2", ".zst", ".xz", ".lz4", ".zip", ".7z", ".snappy"}
_SAMPLED_BYTES = 1 << 20
_SAMPLED_ROWS = 2000


@dataclass
class Sample:
    """The first rows of a file."""

    table: pa.Table
    #: Spark type of each column; empty for a nested type that no event can have.
    types: dict[str, str]
    #: Whether values are written as text, which can be read as any type.
    as_text: bool = True
    #: Whether the file names its columns.
    named: bool = True
    delimiter: str = ","
    comment: str = ""
    metadata: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def first(self) -> pa.Table:
        """As many rows as a look into the values takes."""
        return self.table.slice(0, _SAMPLED_ROWS)


def visible_files(path: Path) -> list[Path]:
    """All files under a folder, the oldest first, as Spark takes them: no hidden ones."""
    files = [
        file
        for file in path.rglob("*")
        if file.is_file() and not any(part[0] in "._" for part in file.relative_to(path).parts)
    ]
    return sorted(files, key=lambda file: (file.stat().st_mtime, file))


def listing(path: Path) -> list[Path]:
    """The file itself, or the files of the folder; raises if there are none."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FileNotFoundError(f"{path} does not exist; give a file or a folder with events or edges")
    files = visible_files(path)
    if not files:
        raise EdgeListError(f"{path} has no files yet; add the first one, from which the columns are found")
    return files


def format_of_all(path: Path, files: list[Path]) -> Format:
    """The one format of all files of a folder."""
    formats = {_format_of(file): file.name for file in reversed(files)}
    if len(formats) > 1:
        raise EdgeListError(
            f"{path} has files of several formats ({', '.join(sorted(formats.values()))}); "
            "give a folder for each, or set --format"
        )
    return next(iter(formats))


def _format_of(file: Path) -> Format:
    """By the name, or if that is not a known one, by the first bytes."""
    suffix = file.suffix.lower()
    if suffix in _OTHER_COMPRESSION:
        raise EdgeListError(f"{file} is compressed as {suffix[1:]}; use gzip (.gz), or none")
    if suffix == ".gz":
        suffix = Path(file.stem).suffix.lower()
    if suffix in _ENDINGS:
        return _ENDINGS[suffix]
    if is_parquet(file):
        return "parquet"
    lines = sample_lines(file, 256)
    return "json" if lines and lines[0].lstrip().startswith(("{", "[")) else "text"


def sample(file: Path, format: Format, names: Collection[str] = ()) -> Sample:
    """The first rows of a file; raises `EdgeListError` if it cannot be read in this format.

    `names` are columns that the file should have: a first line of text with all of them is a header.
    """
    try:
        if format in TEXTS:
            return _text(file, names)
        return _parquet(file) if format == "parquet" else _json(file)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise EdgeListError(f"{file} cannot be read as {FORMAT_NAMES[format]}: {error}") from error


def _parquet(file: Path) -> Sample:
    with pq.ParquetFile(file) as parquet:
        schema = parquet.schema_arrow
        rows = next(parquet.iter_batches(_SAMPLED_ROWS), None)
    table = schema.empty_table() if rows is None else pa.Table.from_batches([rows])
    types = {column.name: _spark_type(column.type) for column in schema}
    # Spark has no type for a column of nulls alone.
    types = {name: found for name, found in types.items() if not is_all_null(table, name)}
    return Sample(table, types, as_text=False, metadata=schema.metadata or {})


def _json(file: Path) -> Sample:
    """One object on each line."""
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(sample_lines(file, _SAMPLED_BYTES), start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise EdgeListError(
                f"{file} has no JSON object on line {number} ({error}); write one on each line"
            ) from error
        if not isinstance(row, dict):
            raise EdgeListError(f"{file} has no JSON object on line {number}; write one on each line")
        rows.append(row)
    if not rows:
        raise EdgeListError(f"{file} is empty; write a JSON object on each line")
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: _json_column([row.get(name) for row in rows]) for name in names}
    return Sample(pa.table(columns), {name: _spark_type(column.type) for name, column in columns.items()})


def _json_column(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # of several types: all of them can be read as text
        return pa.array([None if v is None else v if isinstance(v, str) else json.dumps(v) for v in values])


def _text(file: Path, expected: Collection[str]) -> Sample:
    text = Text.load(file, _SAMPLED_BYTES, expected)
    table = read_text(text)
    names = text.header or [f"c{i}" for i in range(1, table.num_columns + 1)]
    if len(names) != table.num_columns or len(set(names)) != len(names):
        raise EdgeListError(
            f"{file} has {table.num_columns} columns, but its header is {', '.join(names)}; "
            "give each column a name of its own"
        )
    table = table.rename_columns(names)
    types = {column.name: _spark_type(column.type, from_text=True) for column in table.schema}
    return Sample(table, types, named=text.header is not None, delimiter=text.delimiter, comment=text.comment)


def _spark_type(kind: Any, *, from_text: bool = False) -> str:
    """The Spark type that reads such a column; empty if no event can use it."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_uint64(kind) or pa.types.is_decimal(kind):
        return UNSIGNED if pa.types.is_uint64(kind) else f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        if kind.unit == "ns" and not from_text:
            return NANOSECONDS
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        of = _spark_type(kind.value_type)
        return f"array<{of}>" if of in ("bigint", "float", "double") else ""
    known = [
        (pa.types.is_integer, "bigint"),
        (pa.types.is_float32, "float"),
        (pa.types.is_float64, "double"),
        (pa.types.is_string, "string"),
        (pa.types.is_large_string, "string"),
        (pa.types.is_date, "date"),
        (pa.types.is_null, "string"),
    ]
    found = next((name for is_it, name in known if is_it(kind)), "")
    return found or ("string" if from_text or pa.types.is_boolean(kind) else "")


def joined_types(files: list[Path], samples: list[Sample], format: Format) -> dict[str, str]:
    """One type for each column, for all of the files."""
    joined = dict(samples[0].types)
    for file, found in zip(files[1:], samples[1:], strict=False):
        if format in TEXTS and list(found.types) != list(joined):
            raise EdgeListError(
                f"{file} has the columns {', '.join(found.types)}, but {files[0].name} has "
                f"{', '.join(joined)}; all files need the same columns"
            )
        for name, kind in found.types.items():
            before = joined.setdefault(name, kind)
            if before == kind:
                continue
            if format == "parquet":
                raise EdgeListError(
                    f"{file} has {kind or 'a nested type'} in the column {name}, but {files[0].name} has "
                    f"{before or 'a nested type'}; write them with the same types"
                )
            joined[name] = "double" if {before, kind} == {"bigint", "double"} else "string"
    return joined


def is_all_null(table: pa.Table, name: str) -> bool:
    """Whether the column has no value at all."""
    return bool(pa.types.is_null(table.schema.field(name).type))
