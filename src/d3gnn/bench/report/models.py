"""Run time of each kind of model, relative to GraphSAGE-mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from d3gnn.bench.report.fields import (
    Result,
    commands,
    distinguishing_settings,
    join_parts,
    mapping,
    notes,
    workload,
)
from d3gnn.bench.report.formatting import DASH, error, number, one_line
from d3gnn.bench.report.section import Section, Table

_TITLES = ["workload", "model", "edges/s", "batch p50, ms", "relative time", "error"]


def models(results: Sequence[Result]) -> list[Section]:
    """A table of all models on all streams."""
    results = sorted(results, key=workload)
    named = [
        (join_parts(workload(r), suffix) or DASH, r)
        for r, suffix in zip(results, distinguishing_settings(results, workload), strict=True)
    ]
    text = [
        "The same stream through one model of each kind in LocalEngine. Batches are interleaved: each runs "
        "through all models before the next one, so that slowdowns of the machine affect all models alike. "
        "Relative time: run time divided by that of GraphSAGE with mean aggregation.",
        *notes(results),
    ]
    cells = [
        [
            name, one_line(model), number(found.get("edges_per_second")), number(found.get("batch_ms_p50")),
            number(found.get("relative_time")), error(found.get("max_relative_error")),
        ]
        for name, result in named
        for model, found in mapping(result.get("models")).items()
        if isinstance(found, Mapping)
    ]  # fmt: skip
    table = Table(_TITLES, cells, names=2) if cells else None
    return [Section("Models", text, table, [], commands(results))]
