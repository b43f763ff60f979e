"""A plain table for results of a kind without a section of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from d3gnn.bench.report.fields import Result, commands, join_parts, mapping, messages, notes, workload
from d3gnn.bench.report.formatting import number, one_line
from d3gnn.bench.report.section import Section, Table

#: Fields shown elsewhere in the report.
_COMMON = {"bench", "version", "settings", "machine", "measured_at", "command", "loss", "note"}
#: Largest number of list items shown.
_MAX_ITEMS = 12


def generic(results: Sequence[Result]) -> list[Section]:
    """One table for each result."""
    return [_plain(result) for result in results]


def _plain(result: Result) -> Section:
    rows = [
        [name, number(value)]
        for key, given in result.items()
        if key not in _COMMON
        for name, value in _flat(str(key), given)
    ]
    settings = ", ".join(f"{key} {one_line(value)}" for key, value in mapping(result.get("settings")).items())
    text = [
        *([f"Settings: {settings}."] if settings else []),
        *messages([(workload(result), result.get("messages_per_edge"))]),
        *notes([result]),
    ]
    table = Table(["field", "value"], rows) if rows else None
    return Section(
        join_parts(one_line(result.get("bench")), workload(result)), text, table, commands=commands([result])
    )


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Flatten nested values; each leaf with its path.

    >>> list(_flat("a", {"b": 1, "c": [2, {"d": 3}]}))
    [('a b', 1), ('a c 1', 2), ('a c 2 d', 3)]
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{name} {key}", inner)
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value[:_MAX_ITEMS], 1):
            yield from _flat(f"{name} {place}", inner)
        if len(value) > _MAX_ITEMS:
            yield name, f"and {len(value) - _MAX_ITEMS:,} more"
    else:
        yield name, value
