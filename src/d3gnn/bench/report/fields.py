"""Reading results, any field of which may be missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from d3gnn.bench.report.words import DASH, number, words

#: One benchmark's result as its JSON says it.
Result = Mapping[str, Any]
#: Settings that tell results of one benchmark apart.
_TELLING = (
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
    """The value if it is a mapping, and an empty one if not."""
    return value if isinstance(value, Mapping) else {}


def rows(value: Any) -> list[Mapping[str, Any]]:
    """The mappings in a list."""
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list | tuple) else []


def quantity(value: Any) -> float | None:
    """The value if it is a number to reckon with."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def above_zero(value: Any) -> float | None:
    """The value if it is a number that can be divided by, or drawn on a log axis."""
    found = quantity(value)
    return found if found is not None and found > 0 else None


def setting(result: Result, name: str) -> Any:
    """What a result says of its settings, at its top or in `settings`."""
    value = result.get(name)
    return mapping(result.get("settings")).get(name) if value is None else value


def workload(result: Result) -> str:
    return words(setting(result, "workload"))


def engine(result: Result) -> str:
    return words(setting(result, "engine"))


def batch(result: Result) -> float:
    return quantity(setting(result, "batch")) or 0


def commands(results: Iterable[Result]) -> list[str]:
    """What makes these results again, each once."""
    return list(dict.fromkeys(str(r["command"]).strip() for r in results if r.get("command")))


def remarks(results: Iterable[Result]) -> list[str]:
    """What results say in words, each once."""
    found = dict.fromkeys(
        f"{title}: {words(r[key])}"
        for r in results
        for key, title in (("loss", "Loss"), ("note", "Note"))
        if r.get(key)
    )
    return list(found)


def messages(named: Iterable[tuple[str, Any]]) -> list[str]:
    """A sentence on the messages per edge of each name that is known for it.

    >>> messages([("grid", 4.0), ("web", 11.5), ("grid", 4.5), ("tree", None)])
    ['Messages per edge: grid 4.00 to 4.50; web 11.5.']
    """
    found: dict[str, list[float]] = {}
    for name, value in named:
        if quantity(value) is not None:
            found.setdefault(name, []).append(float(value))
    said = []
    for name, values in found.items():
        ends = list(dict.fromkeys(number(end) for end in (min(values), max(values))))
        said.append(" to ".join(ends) if name == DASH else f"{name} {' to '.join(ends)}")
    return [f"Messages per edge: {'; '.join(said)}."] if said else []


def differences(results: Sequence[Result], alike: Callable[[Result], Hashable]) -> list[str]:
    """For each result the settings that tell it from those that are alike otherwise; mostly none."""
    groups: dict[Hashable, list[Result]] = {}
    for result in results:
        groups.setdefault(alike(result), []).append(result)

    def said(result: Result) -> str:
        group = groups[alike(result)]
        return ", ".join(
            f"{name.replace('_', ' ')} {words(setting(result, name))}"
            for name in _TELLING
            if len({str(setting(other, name)) for other in group}) > 1
        )

    return [said(result) for result in results]


def joined(*parts: str) -> str:
    """What is known of a name's parts.

    >>> joined("local", "—", "", "parts 2")
    'local, parts 2'
    """
    return ", ".join(part for part in parts if part and part != DASH)
