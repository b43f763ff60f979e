"""The columns of an edge list: which one is what, and their values as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from d3gnn.sources.errors import EdgeListError
from d3gnn.types import Ints, Small

# In order of preference: `i` is a target beside `u` and a source beside `j`.
_SOURCE_NAMES = (
    *(
        "src",
        "source",
        "u",
        "from",
        "user",
        "srcid",
        "sourceid",
        "userid",
        "fromid",
        "fromnodeid",
        "fromnode",
    ),
    *("usera", "sender", "rater", "citing", "node1", "id1", "head", "i"),
)
_TARGET_NAMES = (
    *("dst", "target", "v", "to", "dest", "destination", "item", "dstid", "targetid", "itemid", "toid"),
    *(
        "tonodeid",
        "tonode",
        "userb",
        "receiver",
        "recipient",
        "ratee",
        "cited",
        "node2",
        "id2",
        "tail",
        "j",
        "i",
    ),
)
_TIME_NAMES = (
    *("time", "ts", "timestamp", "eventtime", "unixts", "unixtime", "epoch", "datetime", "date", "year", "t"),
    *("createdat",),
)
_OP_NAMES = ("op", "operation")
_MICROSECONDS = 1_000_000
#: 1973 in seconds since 1970: a column whose values all reach it is a clock, not a weight or a rating.
_CLOCK = 100_000_000


@dataclass(frozen=True)
class Roles:
    """Positions of the columns; None where there is no such column."""

    src: int
    dst: int
    time: int | None
    op: int | None


def names_ends(names: Sequence[str]) -> bool:
    """Whether a header names both ends of an edge."""
    src, dst = _named_ends(names)
    return src is not None and dst is not None


def names_time(names: Sequence[str]) -> int | None:
    """The position of the first column with a usual name of times."""
    return _first_named(names, _TIME_NAMES, ())


def find_roles(path: Path, table: Any, names: Sequence[str] | None) -> Roles:
    """Columns by their names; those without a known name by position and content."""
    if table.num_rows == 0:
        raise EdgeListError(f"{path} has no edges; write at least one row with a source and a target")
    columns = range(table.num_columns)
    op = _first_named(names or (), _OP_NAMES, ())
    if op is None:
        op = next((column for column in columns if _is_signs(table.column(column))), None)
    src, dst = _named_ends(names or ())
    time = _first_named(names or (), _TIME_NAMES, (op, src, dst))
    if src is None or dst is None:
        if (
            time is None
            and op == 1
            and table.num_columns >= 4
            and _is_clock(table.column(0), any_integers=True)
        ):
            time = 0
        ends = [column for column in columns if column not in (op, time)]
        if len(ends) < 2:
            raise EdgeListError(
                f"{path} has fewer than two columns of ids ({table.num_columns} columns in all); "
                "an edge needs a source and a target"
            )
        src, dst = ends[:2]
    if time is None:
        time = _time_by_content(table, [column for column in columns if column not in (op, src, dst)])
    return Roles(src, dst, time, op)


def is_integers(column: Any) -> bool:
    """Whether all values are integers and none is null."""
    return bool(column.null_count == 0 and pa.types.is_integer(column.type))


def ids_of(path: Path, src: Any, dst: Any) -> tuple[Any, Any]:
    """Both ends as int64 arrays; as string arrays if some id is not an integer."""
    for name, column in (("source", src), ("target", dst)):
        if column.null_count:
            raise EdgeListError(
                f"{path} has no {name} id in edge {_first_null(column)}; fill it in or remove it"
            )
    try:
        return _integers(src), _integers(dst)
    except pa.ArrowInvalid:
        return _strings(path, "source", src), _strings(path, "target", dst)


def times_of(path: Path, table: Any, position: int | None) -> Ints:
    """Integers as they are; seconds with a fraction and dates as microseconds; else the position."""
    if position is None:
        return np.arange(table.num_rows, dtype=np.int64)
    column = table.column(position)
    if column.null_count:
        raise EdgeListError(
            f"{path} has no time in edge {_first_null(column)}; fill it in or remove the edge"
        )
    if pa.types.is_integer(column.type):
        return _integers(column)
    if pa.types.is_floating(column.type):
        seconds = np.asarray(column.to_numpy(), dtype=np.float64)
        if not np.isfinite(seconds).all():
            row = int(np.argmin(np.isfinite(seconds))) + 1
            raise EdgeListError(f"{path} has the time {seconds[row - 1]} in edge {row}; give a finite number")
        return np.rint(seconds * _MICROSECONDS).astype(np.int64)
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        zone = getattr(column.type, "tz", None)
        return _integers(column.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64()))
    raise EdgeListError(
        f"{path} has times that cannot be read, as {column[0].as_py()!r}; give integers, seconds or dates"
    )


def ops_of(path: Path, table: Any, position: int | None) -> Small:
    """+1 for a created edge, -1 for a deleted one."""
    if position is None:
        return np.ones(table.num_rows, dtype=np.int8)
    signs = pc.utf8_trim_whitespace(table.column(position).cast(pa.string()))
    comes = pc.is_in(signs, pa.array(["+", "+1", "1"]))
    known = pc.or_(comes, pc.is_in(signs, pa.array(["-", "-1"])))
    row = pc.index(known, False).as_py()
    if row >= 0:
        raise EdgeListError(f"{path} has the operation {signs[row].as_py()!r} in edge {row + 1}; give + or -")
    return np.where(comes.to_numpy(), 1, -1).astype(np.int8)


def _named_ends(names: Sequence[str]) -> tuple[int | None, int | None]:
    src = _first_named(names, _SOURCE_NAMES, ())
    return src, _first_named(names, _TARGET_NAMES, (src,))


def _first_named(names: Sequence[str], known: Sequence[str], taken: Sequence[int | None]) -> int | None:
    plain = ["".join(filter(str.isalnum, name)).lower() for name in names]
    positions = (plain.index(name) for name in known if name in plain)
    return next((position for position in positions if position not in taken), None)


def _time_by_content(table: Any, rest: list[int]) -> int | None:
    clock = next((column for column in rest if _is_clock(table.column(column))), None)
    if clock is not None:
        return clock
    return rest[0] if rest and is_integers(table.column(rest[0])) else None


def _is_clock(column: Any, *, any_integers: bool = False) -> bool:
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        return True
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return False
    return any_integers or bool((pc.min(column).as_py() or 0) >= _CLOCK)


def _is_signs(column: Any) -> bool:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return False
    # The first value settles it for nearly every file.
    signs = pa.array(["+", "-"], type=column.type)
    return all(bool(pc.all(pc.is_in(part, signs)).as_py()) for part in (column.slice(0, 1), column))


def _integers(column: Any) -> Ints:
    values = column if pa.types.is_integer(column.type) else column.cast(pa.int64())
    return np.ascontiguousarray(values.cast(pa.int64()).to_numpy(), dtype=np.int64)


def _strings(path: Path, name: str, column: Any) -> Any:
    try:
        strings = pc.utf8_trim_whitespace(column.cast(pa.string())).combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise EdgeListError(f"{path} has {name} ids that are not text in UTF-8: {error}") from error
    empty = pc.index(strings, "").as_py()
    if empty >= 0:
        raise EdgeListError(f"{path} has no {name} id in edge {empty + 1}; fill it in or remove the edge")
    return strings


def _first_null(column: Any) -> int:
    return int(pc.index(column.is_null(), True).as_py()) + 1
