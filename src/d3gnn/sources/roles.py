"""Which column of a file is which column of the event format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from d3gnn.sources.columns import find_roles, names_ends, names_time
from d3gnn.sources.errors import EdgeListError
from d3gnn.sources.sample import UNSIGNED, Sample, is_all_null
from d3gnn.sources.text import numbers_in

#: What the rows of an input are: events of any kind, or all edges, vertex features or labels.
Kind = Literal["events", "edges", "features", "labels"]
ELEMENT_OF: dict[Kind, str] = {"edges": "edge", "features": "feature", "labels": "label"}
TIMES = ("time", "arrival")

#: The columns of the event format that a file can have.
_EVENT_COLUMNS = (
    "op", "element", "src", "dst", "key", "feature", "value", "time", "arrival", "partition", "offset",
    "ttl",
)  # fmt: skip
_ID_NAMES = ("id", "src", "vertex", "node", "vertexid", "nodeid", "user", "userid", "item", "itemid")
_LABEL_NAMES = ("label", "y", "class", "target", "value")
#: Names of times that cannot be those of a feature (unlike `year`).
_VERTEX_TIMES = ("time", "ts", "timestamp", "eventtime", "datetime")
_NUMBERS = ("bigint", "float", "double", UNSIGNED)
#: Rows whose text is checked for numbers.
_CHECKED = 100


@dataclass(frozen=True)
class FileRoles:
    """The column of the file for each column of the event format that the file has."""

    columns: dict[str, str]
    #: The element of all rows; None if each row has one of its own.
    element: str | None = None
    #: Several columns that are the value together.
    values: list[str] = field(default_factory=list)


def find_file_roles(
    file: Path, sample: Sample, kind: Kind, given: Mapping[str, str], values: Sequence[str]
) -> FileRoles:
    """By the columns that are given, by the names that they usually have, or by position without a header."""
    names = list(sample.types)
    named = [*given.items(), *(("value", name) for name in values)]
    for role, name in named:
        if name not in names:
            hint = "" if sample.named else " (its first line is not a header)"
            raise EdgeListError(
                f"{file} has no column {name!r} for {role}; its columns are {', '.join(names)}{hint}"
            )
    if kind in ("features", "labels"):
        roles = _vertex_roles(file, sample, kind, dict(given), list(values))
    else:
        roles = _event_roles(file, sample, kind, dict(given))
    wrong = [name for name in [*roles.columns.values(), *roles.values] if not sample.types[name]]
    if wrong:
        type = sample.table.schema.field(wrong[0]).type
        raise EdgeListError(f"{file} has {type} in the column {wrong[0]}, which no event can have")
    return roles


def _event_roles(file: Path, sample: Sample, kind: Kind, given: dict[str, str]) -> FileRoles:
    names = list(sample.types)
    if "src" in names and not {"src", "dst"} & set(given):
        roles = {role: role for role in _EVENT_COLUMNS if role in names} | given
        edges = kind == "edges" or ("dst" in roles and "element" not in roles)
    elif {"src", "dst"} <= set(given):
        roles, edges = dict(given), True
    elif {"src", "dst"} & set(given):
        raise EdgeListError(f"{file}: give both --src and --dst, the columns with the ends of an edge")
    else:
        roles, edges = _edge_roles(file, sample) | given, True
    if kind == "edges":
        roles.pop("element", None)
        if "dst" not in roles:
            raise EdgeListError(
                f"{file} has the columns {', '.join(names)}: none is 'dst'; name the ends of an edge with "
                "--src and --dst"
            )
    if "time" not in roles and sample.named:
        rest = [name for name in names if name not in roles.values()]
        if (time := names_time(rest)) is not None:
            roles["time"] = rest[time]
    if "key" in roles and "key" not in given and is_all_null(sample.table, roles["key"]):
        del roles["key"]
    return FileRoles(_in_order(roles), "edge" if edges else None)


def _in_order(roles: Mapping[str, str]) -> dict[str, str]:
    return {role: roles[role] for role in _EVENT_COLUMNS if role in roles}


def _edge_roles(file: Path, sample: Sample) -> dict[str, str]:
    """By the names that edge lists usually have; without a header by position."""
    names = list(sample.types)
    if sample.named and not names_ends(names):
        raise EdgeListError(
            f"{file} has the columns {', '.join(names)}: none is 'src'; name the ends of an edge with --src "
            "and --dst"
        )
    found = find_roles(file, sample.table, names if sample.named else None)
    # With a header, a time has a known name: an unknown column of integers may be a weight.
    time = None if sample.named else found.time
    positions = {"op": found.op, "src": found.src, "dst": found.dst, "time": time}
    return {role: names[position] for role, position in positions.items() if position is not None}


# ------------------------------------------------------------------ features and labels


def _vertex_roles(
    file: Path, sample: Sample, kind: Kind, given: dict[str, str], values: list[str]
) -> FileRoles:
    names, what = list(sample.types), kind.removesuffix("s")
    roles = dict(given)
    if "src" not in roles:
        id = _first_known(names, _ID_NAMES) if sample.named else names[0]
        if id is None or (id == "src" and "dst" in names):  # a file of edges has no ids of vertices
            raise EdgeListError(
                f"{file} has the columns {', '.join(names)}: none is 'id'; name the one with the ids of the "
                f"vertices with --{what}-id"
            )
        roles["src"] = id
    if sample.named:
        _add_named(roles, values, sample)
    rest = [name for name in names if name not in roles.values()]
    if not values:
        find = _label_column if kind == "labels" else _feature_columns
        values = find(file, sample, rest)
    _check_numbers(file, sample, values, what)
    if len(values) == 1:
        roles, values = roles | {"value": values[0]}, []
    return FileRoles(_in_order(roles), ELEMENT_OF[kind], values)


def _add_named(roles: dict[str, str], values: list[str], sample: Sample) -> None:
    """Columns beside id and value, by their names; `feature` is a name only beside a column `value`."""
    free = [name for name in sample.types if name not in [*roles.values(), *values]]
    if "time" not in roles and (time := _first_known(free, _VERTEX_TIMES)) is not None:
        roles["time"] = time
    for role in ("op", "feature"):
        is_value = role == "feature" and "value" not in [*values, *free]
        if role in free and role not in roles and sample.types[role] == "string" and not is_value:
            roles[role] = role
    for role in ("arrival", "partition", "offset"):
        if role in free:
            roles.setdefault(role, role)


def _first_known(names: Sequence[str], known: Sequence[str]) -> str | None:
    plain = {"".join(filter(str.isalnum, name)).lower(): name for name in reversed(names)}
    return next((plain[name] for name in known if name in plain), None)


def _label_column(file: Path, sample: Sample, rest: list[str]) -> list[str]:
    label = rest[0] if len(rest) == 1 else _first_known(rest, _LABEL_NAMES) if sample.named else None
    if label is None:
        raise EdgeListError(
            f"{file} has the columns {', '.join(sample.types)}: none is 'label'; name the one with the "
            "labels with --label-value"
        )
    return [label]


def _feature_columns(file: Path, sample: Sample, rest: list[str]) -> list[str]:
    """The column `value`, the only column, the only column of lists, or all columns of numbers."""
    if "value" in rest:
        return ["value"]
    lists = [name for name in rest if sample.types[name].startswith("array")]
    numbers = [name for name in rest if _is_number(sample.types[name])]
    if len(rest) == 1:
        return rest
    if len(lists) == 1 and not numbers:
        return lists
    if lists or not numbers:
        raise EdgeListError(
            f"{file} has the columns {', '.join(sample.types)}; name the one with the feature's list, or all "
            "columns with its numbers, with --feature-value"
        )
    return numbers


def _is_number(type: str) -> bool:
    return type in _NUMBERS or type.startswith("decimal")


def _check_numbers(file: Path, sample: Sample, values: list[str], what: str) -> None:
    """Raise if values are not numbers; a single column may also have lists, or text with numbers."""
    for name in values:
        type = sample.types[name]
        if _is_number(type) or is_all_null(sample.table, name):
            continue
        if len(values) == 1 and (type.startswith("array") or not type):
            continue
        texts = sample.first.slice(0, _CHECKED)[name].to_pylist()
        wrong = next((text for text in texts if text is not None and not _is_numbers(text)), None)
        if type != "string" or wrong is not None or len(values) > 1:
            example = f", as {wrong!r}" if wrong is not None else ""
            raise EdgeListError(
                f"{file} has {type} in the column {name}{example}; a {what} is a number"
                f"{' or a list of numbers' if len(values) == 1 else ''}"
            )


def _is_numbers(text: Any) -> bool:
    try:
        list(map(float, numbers_in(str(text))))
    except ValueError:
        return False
    return True


# ------------------------------------------------------------------ checks of types


def settle_ids(
    file: Path, sample: Sample, types: dict[str, str], roles: Mapping[str, str], wanted: str | None
) -> str:
    """The one type of all ids; integers that were written as floating-point numbers are integers."""
    ends = [roles[role] for role in ("src", "dst") if role in roles]
    for name in [*ends, *([roles["key"]] if "key" in roles else [])]:
        if types[name] in ("float", "double"):
            values = pc.drop_null(sample.table[name].cast(pa.float64()))
            if not pc.all(pc.equal(values, pc.floor(values))).as_py():
                raise EdgeListError(f"{file} has ids with fractions in the column {name}; use whole numbers")
        elif types[name] not in ("bigint", "string", UNSIGNED):
            raise EdgeListError(f"{file} has {types[name]} in the column {name}; ids are integers or strings")
    found = {types[name] for name in ends if not is_all_null(sample.table, name)}
    ids = "string" if wanted == "string" or (wanted is None and "string" in found) else "bigint"
    for name in ends:
        # Text is read as the type of the ids at once, so that 007 stays 007.
        if (ids == "string" and sample.as_text) or is_all_null(sample.table, name):
            types[name] = ids
    return ids


def check_times(file: Path, table: pa.Table, types: Mapping[str, str], roles: Mapping[str, str]) -> None:
    """Raise if the first time is a text that is no date."""
    for role in TIMES:
        name = roles.get(role)
        if name is None or types[name] != "string" or is_all_null(table, name):
            continue
        first = next((str(value) for value in table[name].to_pylist() if value is not None), None)
        try:
            datetime.fromisoformat(first or "2000-01-01")
        except ValueError as error:
            raise EdgeListError(
                f"{file} has times that cannot be read, as {first!r} in the column {name}; use integers, "
                "seconds or dates like 2026-01-31 10:00:00"
            ) from error


def check_unit(file: Path, types: Mapping[str, str], roles: Mapping[str, str]) -> None:
    """Raise if there are no integer times, which alone have a unit."""
    name = roles.get("time")
    if name is None:
        raise EdgeListError(f"{file} has no column of times for --ts-unit; name one with --ts")
    if types[name] != "bigint":
        raise EdgeListError(
            f"{file} has {types[name]} in the column {name}; --ts-unit is for integer times only"
        )
