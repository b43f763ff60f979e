"""How fast edges are given their parts, and how well."""

from __future__ import annotations

from collections.abc import Sequence

from d3gnn.bench.report.fields import Result, commands, messages, quantity, remarks, setting, workload
from d3gnn.bench.report.section import Section, Table
from d3gnn.bench.report.words import number, words

_FIELDS = {
    "edges/s": "edges_per_second",
    "edges/s, choice alone": "choice_edges_per_second",
    "replication factor": "replication_factor",
    "balance": "balance",
    "edges": "edges",
    "vertices": "vertices",
}


def partitioner(results: Sequence[Result]) -> list[Section]:
    """One table."""
    results = sorted(results, key=lambda r: (words(setting(r, "partitioner")), quantity(r.get("parts")) or 0))
    cells = [
        [
            words(setting(result, "partitioner")), words(_mode(result)), number(setting(result, "parts")),
            *(number(result.get(field)) for field in _FIELDS.values()),
        ]
        for result in results
    ]  # fmt: skip
    text = [
        "Edges per second through the whole operator, and through the bare choice of a part. The replication "
        "factor is the mean number of parts that a vertex is in; balance is the fullest part over the mean.",
        *messages((workload(r), r.get("messages_per_edge")) for r in results),
        *remarks(results),
    ]
    table = Table(["partitioner", "edge mode", "parts", *_FIELDS], cells, names=2)
    return [Section("Partitioner", text, table, commands=commands(results))]


def _mode(result: Result) -> object:
    settings = result.get("settings")
    return settings.get("edges") if isinstance(settings, dict) else None
