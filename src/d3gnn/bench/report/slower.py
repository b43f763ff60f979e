"""All measurements in which d3gnn is slower than another system, worst first."""

from __future__ import annotations

from collections.abc import Sequence

from d3gnn.bench.report.fields import Result, notes, setting, workload
from d3gnn.bench.report.formatting import number, times
from d3gnn.bench.report.peers import ratios, seconds_per_batch, title
from d3gnn.bench.report.section import Cell, Section, Table

_TITLES = [
    "workload",
    "d3gnn engine",
    "other system",
    "batch",
    "speed-up",
    "time ratio",
    "d3gnn, s/batch",
    "other, s/batch",
]


def slower(peers: Sequence[Result], others: Sequence[Result]) -> list[Section]:
    """Every speed-up below 1, and the `loss` notes of any result."""
    found = list(ratios(peers))
    lost = sorted((ratio for ratio in found if ratio.value < 1), key=lambda ratio: ratio.value)
    loss_notes = [text for text in notes([*peers, *others]) if text.startswith("Loss")]
    if not found:
        text = "No result compares d3gnn with another system."
    elif not lost:
        text = f"d3gnn is slower in none of the {len(found)} comparisons."
    else:
        text = f"d3gnn is slower in {len(lost)} of the {len(found)} comparisons, sorted by time ratio."
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
    return [
        Section("Where d3gnn is slower", [text, *loss_notes], Table(_TITLES, rows, names=3) if rows else None)
    ]
