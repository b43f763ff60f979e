"""How to read files of events, edges, features or labels, found out from the first of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from d3gnn.events.event import DEFAULT_FEATURE
from d3gnn.sources.roles import (
    TIMES,
    FileRoles,
    Kind,
    check_times,
    check_unit,
    find_file_roles,
    settle_ids,
)
from d3gnn.sources.sample import (
    FORMAT_NAMES,
    TEXTS,
    Format,
    Sample,
    format_of_all,
    joined_types,
    listing,
    sample,
)
from d3gnn.sources.text import numbers_in

__all__ = ["Files", "Found", "TimeUnit", "look"]

#: The unit of integer times.
TimeUnit = Literal["s", "ms", "us", "ns"]
_SAMPLED_FILES = 3
_ROWS = {None: "events", "edge": "edges", "feature": "features", "label": "labels"}


@dataclass(frozen=True)
class Files:
    """How to read files; plain values, so that it can be stored as JSON.

    path:
        A file, or a folder of which all files are read.
    columns:
        Name and Spark type of each column to read; for text, of all columns in their order.
    roles:
        The column of the files for each column of the event format that they have.
    element:
        The element of all rows (`edge`, `feature`, `label`); None if each row has its own.
    ids:
        Spark type of the vertex ids: `bigint` or `string`.
    time_unit:
        Unit of integer times.
    values:
        Several columns that are the value together, if it is not a single one.
    """

    path: str
    format: Format
    columns: dict[str, str]
    roles: dict[str, str]
    element: str | None
    ids: str = "bigint"
    delimiter: str = ","
    header: bool = False
    comment: str = ""
    time_unit: TimeUnit = "us"
    values: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = [f"{role} = {name} ({self._kind(role, name)})" for role, name in self.roles.items()]
        if self.values:
            kinds.append(f"value = {' + '.join(self.values)}")
        unused = [name for name in self.columns if name not in self.used]
        text = f"{_ROWS[self.element]} in {FORMAT_NAMES[self.format]}: {', '.join(kinds)}"
        return text + (f"; not used: {', '.join(unused)}" if unused else "")

    @property
    def used(self) -> set[str]:
        """The columns that events are made of."""
        return {*self.roles.values(), *self.values}

    def _kind(self, role: str, name: str) -> str:
        kind = self.columns[name]
        has_unit = role in TIMES and kind == "bigint" and self.time_unit != "us"
        return f"{kind} in {self.time_unit}" if has_unit else kind


class Found(NamedTuple):
    """The result of a look into the first files."""

    files: Files
    #: Numbers in the first value of a vertex, or in the first label; 0 if the first rows have none.
    width: int
    #: Metadata of a Parquet file, with the graph's schema if `d3gnn generate` wrote it.
    metadata: dict[bytes, bytes]


def look(
    path: str | Path,
    *,
    kind: Kind = "events",
    format: Format | None = None,
    names: Mapping[str, str] | None = None,
    values: Sequence[str] = (),
    ids: Literal["integer", "string"] | None = None,
    time_unit: TimeUnit | None = None,
) -> Found:
    r"""Look into the first files at `path`; raises `EdgeListError` or `OSError` with what is wrong.

    `kind` is what the rows are: `events` in the event format or edges, or all of them `edges`, `features` or
    `labels`. `names` are columns by the names of the event format (`{"src": "payer"}`), `values` the columns
    of a feature. Other columns are found by their names; columns of files without a header are `c1`, `c2`
    and so on. `ids` is the type of the ids, `time_unit` the unit of integer times.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w", suffix=".csv") as file:
    ...     print("payer,payee,ts\n1,ann,2026-01-01 10:00:00", file=file, flush=True)
    ...     found = look(file.name, names={"src": "payer", "dst": "payee"})
    >>> str(found.files)
    'edges in CSV: src = payer (string), dst = payee (string), time = ts (timestamp_ntz)'
    """
    path = Path(path)
    listed = listing(path)
    read_as = format or format_of_all(path, listed)
    given = {*(names or {}).values(), *values}
    samples = [sample(file, read_as, given) for file in listed[:_SAMPLED_FILES]]
    first = samples[0]
    types = joined_types(listed, samples, read_as)
    roles = find_file_roles(listed[0], first, kind, names or {}, values)
    id_type = settle_ids(listed[0], first, types, roles.columns, ids)
    check_times(listed[0], first.table, types, roles.columns)
    if time_unit is not None:
        check_unit(listed[0], types, roles.columns)
    for name in [*roles.values, roles.columns.get("value", "")]:
        # Whole numbers in the first rows do not mean that all are whole.
        if first.as_text and types.get(name, "").endswith(("bigint", "bigint>")):
            types[name] = types[name].replace("bigint", "double")
    if read_as in TEXTS:
        read_as = "text" if first.delimiter == " " else "csv"
    else:
        used = {*roles.columns.values(), *roles.values}
        types = {name: type for name, type in types.items() if name in used}
    files = Files(
        str(path.resolve()), read_as, types, roles.columns, roles.element, id_type, first.delimiter,
        first.named and read_as in TEXTS, first.comment, time_unit or "us", roles.values,
    )  # fmt: skip
    return Found(files, _width(first, roles), first.metadata)


def _width(sample: Sample, roles: FileRoles) -> int:
    """Numbers in the first value of a vertex, or in the first label."""
    if roles.values:
        return len(roles.values)
    if "value" not in roles.columns or roles.element == "edge":
        return 0
    first = sample.first
    none = [None] * first.num_rows
    columns: list[list[Any]] = [
        none if name is None else first[name].to_pylist()
        for name in (roles.columns.get(role) for role in ("element", "feature", "value"))
    ]
    for own, feature, value in zip(*columns, strict=True):
        element = roles.element or own or ("edge" if "dst" in roles.columns else "vertex")
        is_default = feature in (None, "", DEFAULT_FEATURE)
        numbers = numbers_in(value) if isinstance(value, str) else value
        counts = element in ("vertex", "feature") or roles.element == "label"
        if counts and is_default and numbers not in (None, []):
            return len(numbers) if isinstance(numbers, list) else 1
    return 0
