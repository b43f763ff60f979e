"""What each kind of layer costs, beside the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from d3gnn.bench.report.fields import Result, commands, differences, joined, mapping, remarks, workload
from d3gnn.bench.report.section import Section, Table
from d3gnn.bench.report.words import DASH, error, number, words

_TITLES = ["workload", "model", "edges/s", "batch p50, ms", "times sage", "error"]


def models(results: Sequence[Result]) -> list[Section]:
    """One table of all models on all streams."""
    results = sorted(results, key=workload)
    named = [
        (joined(workload(r), said) or DASH, r)
        for r, said in zip(results, differences(results, workload), strict=True)
    ]
    text = [
        "The same stream through one model of each kind in the local engine, batch by batch in turns, so "
        "that what slows down the machine for a while meets all of them. `times sage` is the time over that "
        "of GraphSAGE with the mean.",
        *remarks(results),
    ]
    cells = [
        [
            name, words(model), number(found.get("edges_per_second")), number(found.get("batch_ms_p50")),
            number(found.get("times")), error(found.get("max_relative_error")),
        ]
        for name, result in named
        for model, found in mapping(result.get("models")).items()
        if isinstance(found, Mapping)
    ]  # fmt: skip
    table = Table(_TITLES, cells, names=2) if cells else None
    return [Section("Models", text, table, [], commands(results))]
