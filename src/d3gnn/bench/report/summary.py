"""The first sections of a report: the machine, and a summary of the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from d3gnn.bench.report.fields import (
    Result,
    engine,
    finite_number,
    join_parts,
    mapping,
    positive_number,
    setting,
    workload,
)
from d3gnn.bench.report.formatting import DASH, number, one_line, times
from d3gnn.bench.report.growth import shape
from d3gnn.bench.report.peers import OURS, ratios, title
from d3gnn.bench.report.section import Cell, Section, Table

_FACTS = {
    "cpu": "CPU",
    "cores": "cores",
    "memory_gb": "memory, GB",
    "python": "Python",
    "torch": "PyTorch",
    "numba": "Numba",
    "spark": "Spark",
    "java": "Java",
    "dgl": "DGL",
    "torch_geometric": "PyG",
}
#: Batch sizes of the speed-ups in the summary.
_SUMMARY_BATCHES = (1, 2000)


def summary(results: Sequence[Result]) -> list[Section]:
    """The machine and the summary."""
    rows: list[list[Cell]] = [
        *_throughputs(results),
        *_speedups(results),
        *_latencies(results),
        *_growths(results),
    ]
    table = Table(["measurement", "configuration", "result"], rows, names=2) if rows else None
    text = "Key numbers of the results below." if rows else "The results below have no number for this table."
    return [_machine(results), Section("Summary", [text], table)]


def _machine(results: Sequence[Result]) -> Section:
    versions = sorted({one_line(r["version"]) for r in results if r.get("version")})
    dates = sorted(
        {one_line(r["measured_at"])[:16].replace("T", " ") for r in results if r.get("measured_at")}
    )
    text = [f"d3gnn {', '.join(versions)}."] if versions else []
    if dates:
        text.append(
            f"Measured {dates[0]} UTC."
            if len(dates) == 1
            else f"Measured from {dates[0]} to {dates[-1]} UTC."
        )
    kinds = Counter(one_line(r.get("bench")) for r in results)
    text.append(f"Results: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}.")
    machines = _machines(results)
    if len(machines) > 1:
        text.append(f"The results come from {len(machines)} different machines or sets of package versions.")
    names = list(dict.fromkeys([*_FACTS, *(fact for machine in machines for fact in machine)]))
    rows = [
        [_FACTS.get(name, name), *(_fact(machine.get(name)) for machine in machines)]
        for name in names
        if any(machine.get(name) is not None for machine in machines)
    ]
    several = len(machines) > 1
    titles = [
        "property",
        *(f"machine {place}" if several else "value" for place in range(1, len(machines) + 1)),
    ]
    return Section("Machine", text, Table(titles, rows, names=len(titles)) if rows else None)


def _fact(value: Any) -> str:
    return number(value) if isinstance(value, int | float) else one_line(value)


def _machines(results: Sequence[Result]) -> list[dict[str, Any]]:
    """The distinct machines; descriptions that do not contradict each other are merged."""
    found: list[dict[str, Any]] = []
    for result in results:
        facts = {name: value for name, value in mapping(result.get("machine")).items() if value is not None}
        same = (
            known for known in found if all(known.get(name, value) == value for name, value in facts.items())
        )
        if facts:
            known = next(same, None)
            if known is None:
                found.append(facts)
            else:
                known.update(facts)
    return found


def _of(results: Sequence[Result], kind: str) -> list[Result]:
    return [result for result in results if result.get("bench") == kind]


def _place(result: Result, *more: str) -> str:
    size = setting(result, "batch")
    return join_parts(workload(result), "" if size is None else f"batches of {number(size)}", *more)


def _throughputs(results: Sequence[Result]) -> Iterator[list[Cell]]:
    for which, name in (("local", "local"), ("spark", "Spark")):
        found = [
            r
            for r in _of(results, "throughput")
            if engine(r) == which and positive_number(r.get("edges_per_second"))
        ]
        if found:
            best = max(found, key=lambda r: float(r["edges_per_second"]))
            yield [f"best {name} throughput", _place(best), f"{best['edges_per_second']:,.0f} edges/s"]


def _speedups(results: Sequence[Result]) -> Iterator[list[Cell]]:
    found = list(ratios(_of(results, "peers")))
    for size in _SUMMARY_BATCHES:
        for which in OURS:
            here = [
                r for r in found if r.engine == which and finite_number(setting(r.result, "batch")) == size
            ]
            if here:
                best = max(here, key=lambda ratio: ratio.value)
                where = join_parts(f"against {title(best.peer)}", workload(best.result))
                yield [f"largest speed-up of {title(which)}, batch {size:,}", where, times(best.value)]
    if found:
        worst = min(found, key=lambda ratio: ratio.value)
        where = join_parts(f"{title(worst.engine)} against {title(worst.peer)}", _place(worst.result))
        lost = sum(ratio.value < 1 for ratio in found)
        yield ["smallest speed-up", where, times(worst.value)]
        yield [
            "speed-ups below 1",
            "listed under Where d3gnn is slower" if lost else DASH,
            f"{lost} of {len(found)}",
        ]


def _latencies(results: Sequence[Result]) -> Iterator[list[Cell]]:
    for result in _of(results, "latency"):
        p50, p99 = (finite_number(result.get(name)) for name in ("p50_ms", "p99_ms"))
        if p50 is not None or p99 is not None:
            where = join_parts(
                engine(result), workload(result), f"{number(setting(result, 'rate'))} events/s"
            )
            yield ["latency p50 / p99", where, f"{number(p50)} / {number(p99, 'ms')}"]


def _growths(results: Sequence[Result]) -> Iterator[list[Cell]]:
    for result in _of(results, "growth"):
        ratio, larger = positive_number(result.get("ratio")), positive_number(result.get("growth"))
        if ratio is not None:
            graph = "" if larger is None else f"{number(larger)} times the edges"
            yield [
                "batch time on a larger graph",
                join_parts(engine(result), shape(result), graph),
                f"{number(ratio)} x",
            ]
