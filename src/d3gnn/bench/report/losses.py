"""Where d3gnn is slower than another system: all of it, worst first."""

from __future__ import annotations

from collections.abc import Sequence

from d3gnn.bench.report.fields import Result, remarks, setting, workload
from d3gnn.bench.report.peers import ratios, seconds_per_batch, title
from d3gnn.bench.report.section import Cell, Section, Table
from d3gnn.bench.report.words import number, times

_TITLES = [
    "workload",
    "slower",
    "than",
    "batch",
    "speed",
    "takes so many times as long",
    "s/batch",
    "the other's",
]


def losses(peers: Sequence[Result], others: Sequence[Result]) -> list[Section]:
    """Every ratio below one of comparisons, and what any result says of its losses."""
    found = list(ratios(peers))
    lost = sorted((ratio for ratio in found if ratio.value < 1), key=lambda ratio: ratio.value)
    said = [text for text in remarks([*peers, *others]) if text.startswith("Loss")]
    if not found:
        text = "No result here compares d3gnn with another system."
    elif not lost:
        text = f"In none of the {len(found)} ratios measured is d3gnn slower than another system."
    else:
        text = f"d3gnn is slower in {len(lost)} of the {len(found)} ratios measured, the worst first."
    rows: list[list[Cell]] = []
    for ratio in lost:
        seconds = seconds_per_batch(ratio.result)
        rows.append(
            [
                workload(ratio.result), title(ratio.engine), title(ratio.peer),
                number(setting(ratio.result, "batch")), times(ratio.value), number(1 / ratio.value),
                number(seconds.get(ratio.engine)), number(seconds.get(ratio.peer)),
            ]
        )  # fmt: skip
    return [Section("Where d3gnn loses", [text, *said], Table(_TITLES, rows, names=3) if rows else None)]
