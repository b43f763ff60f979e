"""Files of events or of edges: what is in them, found out from the first ones, and how all are to be read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from d3gnn.events import DEFAULT_FEATURE
from d3gnn.sources.columns import find_roles, names_ends, names_time
from d3gnn.sources.errors import EdgeListError
from d3gnn.sources.parquet import is_parquet
from d3gnn.sources.text import Text, numbers_in, read_text, sample_lines

__all__ = ["FORMATS", "Files", "Found", "TimeUnit", "look"]

Format = Literal["csv", "json", "parquet", "text"]
FORMATS = ("csv", "json", "parquet", "text")
#: What times that are whole numbers count.
TimeUnit = Literal["s", "ms", "us", "ns"]

#: The columns of the event format that a file can have.
EVENT_COLUMNS = (
    "op", "element", "src", "dst", "key", "feature", "value", "time", "arrival", "partition", "offset",
)  # fmt: skip
_ENDINGS: dict[str, Format] = {
    ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet",
}  # fmt: skip
_OTHER_COMPRESSION = {".bz2", ".zst", ".xz", ".lz4", ".zip", ".7z", ".snappy"}
_SAMPLED_FILES = 3
_SAMPLED_BYTES = 1 << 20
_SAMPLED_ROWS = 2000
_TEXTS, _TIMES = ("csv", "text"), ("time", "arrival")
#: Times with nanoseconds, which Spark does not read by itself.
NANOSECONDS = "nanoseconds"
#: As Spark reads unsigned integers of 64 bits.
_UNSIGNED = "decimal(20,0)"


@dataclass(frozen=True)
class Files:
    """How files are to be read; plain values, so that it can be written down.

    path:
        A file, or a folder of which all files count.
    columns:
        Name and Spark type of each column to be read; for text, of all columns in their order.
    roles:
        For each column of the event format that there is, the column of the files which it is.
    edges:
        Whether every row is an edge.
    ids:
        What vertices are named by: `bigint` or `string`.
    time_unit:
        What times that are whole numbers count.
    """

    path: str
    format: Format
    columns: dict[str, str]
    roles: dict[str, str]
    edges: bool
    ids: str = "bigint"
    delimiter: str = ","
    header: bool = False
    comment: str = ""
    time_unit: TimeUnit = "us"

    def __str__(self) -> str:
        kinds = [f"{role} = {name} ({self._kind(role, name)})" for role, name in self.roles.items()]
        unused = [name for name in self.columns if name not in self.roles.values()]
        text = f"{'edges' if self.edges else 'events'} in {_NAMES[self.format]}: {', '.join(kinds)}"
        return text + (f"; not used: {', '.join(unused)}" if unused else "")

    def _kind(self, role: str, name: str) -> str:
        kind = self.columns[name]
        has_unit = role in _TIMES and kind == "bigint" and self.time_unit != "us"
        return f"{kind} in {self.time_unit}" if has_unit else kind


_NAMES = {"csv": "CSV", "json": "JSON", "parquet": "Parquet", "text": "text between white space"}


class Found(NamedTuple):
    """What the first files told."""

    files: Files
    #: How wide the first value of a vertex is; 0 if there is none among the first rows.
    width: int
    #: What `d3gnn generate` and others wrote beside the rows of a Parquet file.
    metadata: dict[bytes, bytes]


@dataclass
class _Sample:
    """The first rows of the files."""

    table: pa.Table
    types: dict[str, str]
    #: Whether the values are written as text, which can be read as any type.
    as_text: bool = True
    named: bool = True
    delimiter: str = ","
    comment: str = ""
    metadata: dict[bytes, bytes] = field(default_factory=dict)


def look(
    path: str | Path,
    *,
    format: Format | None = None,
    names: Mapping[str, str] | None = None,
    ids: Literal["integer", "string"] | None = None,
    time_unit: TimeUnit | None = None,
) -> Found:
    r"""Look into the first files at `path`; raises `EdgeListError` or `OSError` that says what is wrong.

    `names` tells which column is what, by the names of the event format (`{"src": "payer"}`). Columns that it
    leaves out are found by the names of the event format, or by those that edge lists usually have. Columns
    of files without a header are `c1`, `c2` and so on. `ids` settles what would be guessed from the values.
    `time_unit` is what times that are whole numbers count, microseconds unless given.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w", suffix=".csv") as file:
    ...     print("payer,payee,ts\n1,ann,2026-01-01 10:00:00", file=file, flush=True)
    ...     found = look(file.name, names={"src": "payer", "dst": "payee"})
    >>> str(found.files)
    'edges in CSV: src = payer (string), dst = payee (string), time = ts (timestamp_ntz)'
    """
    path = Path(path)
    listed = _listing(path)
    kind = format or _format(path, listed)
    samples = [_sample(file, kind) for file in listed[:_SAMPLED_FILES]]
    sample = samples[0]
    types = _joined_types(listed, samples, kind)
    roles, edges = _roles(listed[0], sample, dict(names or {}))
    id_type = _settle_ids(listed[0], sample, types, roles, ids)
    _check_times(listed[0], sample.table, types, roles)
    if time_unit is not None:
        _check_unit(listed[0], types, roles)
    if kind in _TEXTS:
        kind = "text" if sample.delimiter == " " else "csv"
    else:
        types = {name: types[name] for name in types if name in roles.values()}
    files = Files(
        str(path.resolve()), kind, types, roles, edges, id_type, sample.delimiter,
        sample.named and kind in _TEXTS, sample.comment, time_unit or "us",
    )  # fmt: skip
    return Found(files, 0 if edges else _width(sample.table, roles), sample.metadata)


# ------------------------------------------------------------------ files


def visible_files(path: Path) -> list[Path]:
    """All files under a folder, the oldest first, as Spark takes them: no hidden ones."""
    files = [
        file
        for file in path.rglob("*")
        if file.is_file() and not any(part[0] in "._" for part in file.relative_to(path).parts)
    ]
    return sorted(files, key=lambda file: (file.stat().st_mtime, file))


def _listing(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FileNotFoundError(f"{path} does not exist; give a file or a folder with events or edges")
    files = visible_files(path)
    if not files:
        raise EdgeListError(f"{path} has no files yet; put a first one there: it tells how to read the rest")
    return files


def _format(path: Path, files: list[Path]) -> Format:
    formats = {_format_of(file): file.name for file in reversed(files)}
    if len(formats) > 1:
        raise EdgeListError(
            f"{path} has files of several formats ({', '.join(sorted(formats.values()))}); "
            "give a folder for each, or say --format"
        )
    return next(iter(formats))


def _format_of(file: Path) -> Format:
    """By the name; where that says nothing, by how the file begins."""
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


# ------------------------------------------------------------------ the first rows


def _sample(file: Path, kind: Format) -> _Sample:
    try:
        return {"parquet": _parquet, "json": _json}.get(kind, _text)(file)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise EdgeListError(f"{file} cannot be read as {_NAMES[kind]}: {error}") from error


def _parquet(file: Path) -> _Sample:
    with pq.ParquetFile(file) as parquet:
        schema = parquet.schema_arrow
        rows = next(parquet.iter_batches(_SAMPLED_ROWS), None)
    table = schema.empty_table() if rows is None else pa.Table.from_batches([rows])
    types = {column.name: _spark_type(column.type) for column in schema}
    # A column of nulls alone has no type that Spark could read.
    types = {name: found for name, found in types.items() if not _is_nothing(table, name)}
    return _Sample(table, types, as_text=False, metadata=schema.metadata or {})


def _json(file: Path) -> _Sample:
    """One object on each line."""
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(sample_lines(file, _SAMPLED_BYTES), start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise EdgeListError(
                f"{file} has no JSON object on line {number} ({error}); give one on each line"
            ) from error
        if not isinstance(row, dict):
            raise EdgeListError(f"{file} has no JSON object on line {number}; give one on each line")
        rows.append(row)
    if not rows:
        raise EdgeListError(f"{file} is empty; give a JSON object on each line")
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: _json_column([row.get(name) for row in rows]) for name in names}
    return _Sample(pa.table(columns), {name: _spark_type(column.type) for name, column in columns.items()})


def _json_column(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # of several types: text is what all of them have
        return pa.array([None if v is None else v if isinstance(v, str) else json.dumps(v) for v in values])


def _text(file: Path) -> _Sample:
    text = Text.load(file, _SAMPLED_BYTES)
    table = read_text(text)
    names = text.header or [f"c{i}" for i in range(1, table.num_columns + 1)]
    if len(names) != table.num_columns or len(set(names)) != len(names):
        raise EdgeListError(
            f"{file} has {table.num_columns} columns, but its header is {', '.join(names)}; "
            "give each column a name of its own"
        )
    table = table.rename_columns(names)
    types = {column.name: _spark_type(column.type, from_text=True) for column in table.schema}
    return _Sample(
        table, types, named=text.header is not None, delimiter=text.delimiter, comment=text.comment
    )


def _spark_type(kind: Any, *, from_text: bool = False) -> str:
    """The Spark type that reads such a column; empty if we have no use for it."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_uint64(kind) or pa.types.is_decimal(kind):
        return _UNSIGNED if pa.types.is_uint64(kind) else f"decimal({kind.precision},{kind.scale})"
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


def _joined_types(files: list[Path], samples: list[_Sample], kind: Format) -> dict[str, str]:
    """One type for each column, whichever of the files it is in."""
    joined = dict(samples[0].types)
    for file, sample in zip(files[1:], samples[1:], strict=False):
        if kind in _TEXTS and list(sample.types) != list(joined):
            raise EdgeListError(
                f"{file} has the columns {', '.join(sample.types)}, but {files[0].name} has "
                f"{', '.join(joined)}; all files need the same columns"
            )
        for name, found in sample.types.items():
            before = joined.setdefault(name, found)
            if before == found:
                continue
            if kind == "parquet":
                raise EdgeListError(
                    f"{file} has {found or 'a nested type'} in the column {name}, but {files[0].name} has "
                    f"{before or 'a nested type'}; write them with the same types"
                )
            joined[name] = "double" if {before, found} == {"bigint", "double"} else "string"
    return joined


# ------------------------------------------------------------------ which column is what


def _roles(file: Path, sample: _Sample, given: dict[str, str]) -> tuple[dict[str, str], bool]:
    """For each column of the event format its column in the files, and whether all rows are edges."""
    names = list(sample.types)
    for role, name in given.items():
        if name not in names:
            raise EdgeListError(
                f"{file} has no column {name!r} for {role}; its columns are {', '.join(names)}"
            )
    if "src" in names and not {"src", "dst"} & set(given):
        roles = {role: role for role in EVENT_COLUMNS if role in names} | given
        edges = "dst" in roles and "element" not in roles
    elif {"src", "dst"} <= set(given):
        roles, edges = dict(given), True
    elif {"src", "dst"} & set(given):
        raise EdgeListError("name both ends of the edges: --src and --dst")
    else:
        roles, edges = _edge_roles(file, sample) | given, True
    if "time" not in roles and sample.named:
        rest = [name for name in names if name not in roles.values()]
        if (time := names_time(rest)) is not None:
            roles["time"] = rest[time]
    if "key" in roles and "key" not in given and _is_nothing(sample.table, roles["key"]):
        del roles["key"]  # a column for completeness
    wrong = [name for name in roles.values() if not sample.types[name]]
    if wrong:
        kind = sample.table.schema.field(wrong[0]).type
        raise EdgeListError(f"{file} has {kind} in the column {wrong[0]}, of which no event can be made")
    return {role: roles[role] for role in EVENT_COLUMNS if role in roles}, edges


def _edge_roles(file: Path, sample: _Sample) -> dict[str, str]:
    """Where no column is called `src`: by the names that edge lists have, else by their places."""
    names = list(sample.types)
    if sample.named and not names_ends(names):
        raise EdgeListError(
            f"{file} has the columns {', '.join(names)}: none is 'src'; say with --src and --dst which are "
            "the ends of an edge"
        )
    found = find_roles(file, sample.table, names if sample.named else None)
    # A name that says nothing of time is that of a weight, say: no guess where there are names.
    time = None if sample.named else found.time
    places = {"op": found.op, "src": found.src, "dst": found.dst, "time": time}
    return {role: names[place] for role, place in places.items() if place is not None}


def _settle_ids(
    file: Path, sample: _Sample, types: dict[str, str], roles: dict[str, str], asked: str | None
) -> str:
    """The type of ids, one for both ends; integers that passed through floating point stay integers."""
    ends = [roles[role] for role in ("src", "dst") if role in roles]
    for name in [*ends, *([roles["key"]] if "key" in roles else [])]:
        if types[name] in ("float", "double"):
            values = pc.drop_null(sample.table[name].cast(pa.float64()))
            if not pc.all(pc.equal(values, pc.floor(values))).as_py():
                raise EdgeListError(f"{file} has ids with fractions in the column {name}; give whole ones")
        elif types[name] not in ("bigint", "string", _UNSIGNED):
            raise EdgeListError(f"{file} has {types[name]} in the column {name}; ids are integers or strings")
    told = {types[name] for name in ends if not _is_nothing(sample.table, name)}
    ids = "string" if asked == "string" or (asked is None and "string" in told) else "bigint"
    for name in ends:
        # Text is read as what it is to be, so that 007 stays 007.
        if (ids == "string" and sample.as_text) or _is_nothing(sample.table, name):
            types[name] = ids
    return ids


def _is_nothing(table: pa.Table, name: str) -> bool:
    return bool(pa.types.is_null(table.schema.field(name).type))


def _check_times(file: Path, table: pa.Table, types: dict[str, str], roles: dict[str, str]) -> None:
    for role in _TIMES:
        name = roles.get(role)
        if name is None or types[name] != "string" or _is_nothing(table, name):
            continue
        first = next((str(value) for value in table[name].to_pylist() if value is not None), None)
        try:
            datetime.fromisoformat(first or "2000-01-01")
        except ValueError as error:
            raise EdgeListError(
                f"{file} has times that cannot be read, as {first!r} in the column {name}; give integers, "
                "seconds or dates like 2026-01-31 10:00:00"
            ) from error


def _check_unit(file: Path, types: dict[str, str], roles: dict[str, str]) -> None:
    name = roles.get("time")
    if name is None:
        raise EdgeListError(f"{file} has no times for which --ts-unit could count; name them with --ts")
    if types[name] != "bigint":
        raise EdgeListError(
            f"{file} has {types[name]} in the column {name}, which needs no --ts-unit: that is for whole "
            "numbers"
        )


def _width(table: pa.Table, roles: Mapping[str, str]) -> int:
    """How many numbers the first value of a vertex has."""
    if "value" not in roles:
        return 0
    columns: Sequence[str | None] = [roles.get(role) for role in ("element", "feature", "value")]
    first = table.slice(0, _SAMPLED_ROWS)
    none = [None] * first.num_rows
    rows = zip(*(none if name is None else first[name].to_pylist() for name in columns), strict=True)
    for element, feature, value in rows:
        about_vertex = element in ("vertex", "feature") or (not element and "dst" not in roles)
        numbers = numbers_in(value) if isinstance(value, str) else value
        if about_vertex and feature in (None, "", DEFAULT_FEATURE) and numbers not in (None, []):
            return len(numbers) if isinstance(numbers, list) else 1
    return 0
