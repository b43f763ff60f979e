"""`d3gnn bench partitioners`: quality and speed of partitioners."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from d3gnn.cli import options as opt
from d3gnn.cli.bench.show import show
from d3gnn.cli.console import print_json, steps, user_mistakes


def partitioners(
    edges: Annotated[
        Path | None,
        typer.Option(help="Edge list in text or Parquet. Default: a synthetic stream.", metavar="FILE"),
    ] = None,
    edges_count: Annotated[
        int | None,
        typer.Option(help="Number of edges. Default: the whole file, or 1,000,000.", metavar="N"),
    ] = None,
    parts: Annotated[str, typer.Option(help="Numbers of parts.", metavar="N,...")] = "4,8,32,128",
    partitioner: Annotated[
        list[opt.PartitionerName] | None,
        typer.Option(help="A partitioner; may be repeated. Default: all.", show_default=False),
    ] = None,
    edges_mode: Annotated[
        opt.EdgesMode, typer.Option(help="Edge mode; all but append also maintain the edge table.")
    ] = opt.EdgesMode.append,
    threads: Annotated[int, typer.Option(help="Threads that choose parts.", metavar="N")] = 1,
    streamed: Annotated[
        int, typer.Option(help="Edges that go through a model of two layers, too.", metavar="N")
    ] = 100_000,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Measure partitioners at several numbers of parts, on a stream of edges.

    Replicas per vertex (replication factor); edges and masters in the fullest part divided by the mean
    (balance); edges per second through the Partition operator, and through the choice of a part alone. The
    first edges also go through a GraphSAGE model of two layers, for the bytes that operators send each other
    and the time of a batch of 2,000 edges. METIS sees the whole stream before.

    [bold]Example[/bold]

      d3gnn bench partitioners --edges sx-mathoverflow.txt.gz --parts 8,32 --json
    """
    with user_mistakes():
        counts = _numbers(parts)
        for name, value in (("--edges-count", edges_count), ("--threads", threads), ("--streamed", streamed)):
            if value is not None and value < 1:
                raise ValueError(f"{name} {value}: must be at least 1")
    with user_mistakes(OSError, ValueError):
        from d3gnn.bench.partitioners import measure_partitioner
        from d3gnn.events import EventBatch
        from d3gnn.sources import SyntheticStream, read_edge_list

        if edges is None:
            count = edges_count or 1_000_000
            stream = EventBatch.concat(list(SyntheticStream(edges=count, seed=seed).batches(count)))
        else:
            found = read_edge_list(edges, limit=edges_count)
            created = found.op > 0
            stream = EventBatch.edges(found.src, found.dst).take(created)
    results = []
    for which in partitioner or list(opt.PartitionerName):
        for count in counts:
            with steps() as bars:
                result = measure_partitioner(
                    stream, count, which.value, workload=edges.name if edges else "synthetic",
                    mode=edges_mode.value, threads=threads, streamed=streamed,
                    on_edges=bars.step(f"{which.value}, {count} parts", len(stream), "edges"),
                )  # fmt: skip
            if as_json:
                print_json(result.to_dict())
            results.append(result)
    if as_json:
        return
    show(
        f"{results[0].edges:,} edges, {results[0].vertices:,} vertices",
        [
            "partitioner", "parts", "replicas per vertex", "edge balance", "vertex balance", "edges/s",
            "choice only", "bytes per edge", "batch, ms",
        ],
        [
            (
                str(r.settings["partitioner"]), f"{r.parts}", f"{r.replication_factor:.3f}",
                f"{r.balance:.3f}", f"{r.vertex_balance:.3f}", f"{r.edges_per_second:,.0f}",
                f"{r.choice_edges_per_second:,.0f}", f"{r.bytes_per_edge:,.0f}", f"{r.batch_ms:.1f}",
            )
            for r in results
        ],
    )  # fmt: skip


def _numbers(parts: str) -> list[int]:
    try:
        counts = [int(count) for count in parts.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise ValueError(f"--parts {parts}: give whole numbers from 1 on, as in 4,8,32")
    return counts
