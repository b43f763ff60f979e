"""Read fields of results; any field may be missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from d3gnn.bench.report.formatting import DASH, number, one_line

#: The JSON object of one benchmark result.
Result = Mapping[str, Any]
#: Settings that distinguish results of one benchmark.
_DISTINGUISHING = (
    "layers",
    "width",
    "model",
    "aggregator",
    "parts",
    "partitioner",
    "threads",
    "sink",
    "max_degree",
    "timed_batches",
)


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty mapping."""
    return value if isinstance(value, Mapping) else {}


def rows(value: Any) -> list[Mapping[str, Any]]:
    """The mappings in a list."""
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list | tuple) else []


def finite_number(value: Any) -> float | None:
    """The value if it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def positive_number(value: Any) -> float | None:
    """The value if it is a finite number above 0, else None."""
    found = finite_number(value)
    return found if found is not None and found > 0 else None


def setting(result: Result, name: str) -> Any:
    """A setting of a result, from its top level or from `settings`."""
    value = result.get(name)
    return mapping(result.get("settings")).get(name) if value is None else value


def workload(result: Result) -> str:
    return one_line(setting(result, "workload"))


def engine(result: Result) -> str:
    return one_line(setting(result, "engine"))


def batch(result: Result) -> float:
    return finite_number(setting(result, "batch")) or 0


def commands(results: Iterable[Result]) -> list[str]:
    """The distinct commands that reproduce these results."""
    return list(dict.fromkeys(str(r["command"]).strip() for r in results if r.get("command")))


def notes(results: Iterable[Result]) -> list[str]:
    """The distinct notes of these results."""
    found = dict.fromkeys(
        f"{title}: {one_line(r[key])}"
        for r in results
        for key, title in (("loss", "Loss"), ("note", "Note"))
        if r.get(key)
    )
    return list(found)


def messages(named: Iterable[tuple[str, Any]]) -> list[str]:
    """A sentence with the range of messages per edge of each name.

    >>> messages([("grid", 4.0), ("web", 11.5), ("grid", 4.5), ("tree", None)])
    ['Messages per edge: grid 4.00 to 4.50; web 11.5.']
    """
    found: dict[str, list[float]] = {}
    for name, value in named:
        if finite_number(value) is not None:
            found.setdefault(name, []).append(float(value))
    texts = []
    for name, values in found.items():
        ends = list(dict.fromkeys(number(end) for end in (min(values), max(values))))
        texts.append(" to ".join(ends) if name == DASH else f"{name} {' to '.join(ends)}")
    return [f"Messages per edge: {'; '.join(texts)}."] if texts else []


def distinguishing_settings(results: Sequence[Result], key: Callable[[Result], Hashable]) -> list[str]:
    """For each result, the settings in which it differs from others with the same `key`; mostly none."""
    groups: dict[Hashable, list[Result]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)

    def suffix(result: Result) -> str:
        group = groups[key(result)]
        return ", ".join(
            f"{name.replace('_', ' ')} {one_line(setting(result, name))}"
            for name in _DISTINGUISHING
            if len({str(setting(other, name)) for other in group}) > 1
        )

    return [suffix(result) for result in results]


def join_parts(*parts: str) -> str:
    """Join the parts that are not empty.

    >>> join_parts("local", "—", "", "parts 2")
    'local, parts 2'
    """
    return ", ".join(part for part in parts if part and part != DASH)
