"""Speed and quality of the streaming vertex-cut."""

from __future__ import annotations

from collections.abc import Sequence

from d3gnn.bench.report.fields import Result, commands, finite_number, messages, notes, setting, workload
from d3gnn.bench.report.formatting import number, one_line
from d3gnn.bench.report.section import Section, Table

_FIELDS = {
    "edges/s": "edges_per_second",
    "edges/s, choice of part only": "choice_edges_per_second",
    "replication factor": "replication_factor",
    "balance": "balance",
    "edges": "edges",
    "vertices": "vertices",
}


def partitioner(results: Sequence[Result]) -> list[Section]:
    """A table of all runs."""
    results = sorted(
        results, key=lambda r: (one_line(setting(r, "partitioner")), finite_number(r.get("parts")) or 0)
    )
    cells = [
        [
            one_line(setting(result, "partitioner")), one_line(_mode(result)),
            number(setting(result, "parts")),
            *(number(result.get(field)) for field in _FIELDS.values()),
        ]
        for result in results
    ]  # fmt: skip
    text = [
        "Edges per second through the whole Partition operator, and through the choice of a part alone. "
        "Replication factor: mean number of parts of a vertex. Balance: edges of the fullest part divided "
        "by the mean.",
        *messages((workload(r), r.get("messages_per_edge")) for r in results),
        *notes(results),
    ]
    table = Table(["partitioner", "edge mode", "parts", *_FIELDS], cells, names=2)
    return [Section("Partitioner", text, table, commands=commands(results))]


def _mode(result: Result) -> object:
    settings = result.get("settings")
    return settings.get("edges") if isinstance(settings, dict) else None
