"""Results of a kind that has no section of its own: their numbers, as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from d3gnn.bench.report.fields import Result, commands, joined, mapping, messages, remarks, workload
from d3gnn.bench.report.section import Section, Table
from d3gnn.bench.report.words import number, words

#: What every result has, and what a section shows elsewhere.
_COMMON = {"bench", "version", "settings", "machine", "made", "command", "loss", "note"}
#: Of a list no more than this is shown.
_MOST = 12


def other(results: Sequence[Result]) -> list[Section]:
    """A table for each result."""
    return [_plain(result) for result in results]


def _plain(result: Result) -> Section:
    rows = [
        [name, number(value)]
        for key, given in result.items()
        if key not in _COMMON
        for name, value in _flat(str(key), given)
    ]
    settings = ", ".join(f"{key} {words(value)}" for key, value in mapping(result.get("settings")).items())
    text = [
        *([f"Settings: {settings}."] if settings else []),
        *messages([(workload(result), result.get("messages_per_edge"))]),
        *remarks([result]),
    ]
    table = Table(["what", "value"], rows) if rows else None
    return Section(
        joined(words(result.get("bench")), workload(result)), text, table, commands=commands([result])
    )


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What is inside of what, each with the path to it.

    >>> list(_flat("a", {"b": 1, "c": [2, {"d": 3}]}))
    [('a b', 1), ('a c 1', 2), ('a c 2 d', 3)]
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{name} {key}", inner)
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value[:_MOST], 1):
            yield from _flat(f"{name} {place}", inner)
        if len(value) > _MOST:
            yield name, f"and {len(value) - _MOST:,} more"
    else:
        yield name, value
