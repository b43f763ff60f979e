"""`d3gnn generate`: a synthetic stream as a Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from d3gnn.cli.console import error_console, steps, user_mistakes
from d3gnn.cli.options import SHARE, Seed, ShapeName

#: Rows of a row group, which are made and written together.
_ROW_GROUP = 1 << 17
_BURST_SHARE = 0.2


def generate(
    out: Annotated[Path, typer.Argument(metavar="OUT.parquet", help="File to write.", show_default=False)],
    edges: Annotated[int, typer.Option(help="Edges to create.", metavar="N")] = 100_000,
    vertices: Annotated[
        int,
        typer.Option(help="Vertices; 0: a number that suits the edges and the shape.", metavar="N"),
    ] = 0,
    shape: Annotated[ShapeName, typer.Option(help="Shape of the graph.")] = ShapeName.power_law,
    max_degree: Annotated[
        int, typer.Option(help="With --shape capped: most edges into and out of a vertex.", metavar="N")
    ] = 16,
    communities: Annotated[int, typer.Option(help="With --shape communities: how many.", metavar="N")] = 8,
    hubs: Annotated[
        int,
        typer.Option(help="With --shape hubs: vertices with half of all edges.", metavar="N"),
    ] = 10,
    deletes: Annotated[
        float, typer.Option(help="Edge deletes, as a share of the edges.", metavar=SHARE)
    ] = 0.0,
    vertex_deletes: Annotated[
        float, typer.Option(help="Vertex deletes, as a share of the edges.", metavar=SHARE)
    ] = 0.0,
    feature_updates: Annotated[
        float, typer.Option(help="Feature updates, as a share of the edges.", metavar=SHARE)
    ] = 0.0,
    bad: Annotated[
        float, typer.Option(help="Bad events of all kinds, as a share of the edges.", metavar=SHARE)
    ] = 0.0,
    late: Annotated[float, typer.Option(help="Share of events that are seconds late.", metavar=SHARE)] = 0.01,
    features: Annotated[bool, typer.Option("--features", help="Create every vertex with a feature.")] = False,
    feature_width: Annotated[int, typer.Option(help="Numbers in a feature.", metavar="N")] = 16,
    bursts: Annotated[
        bool, typer.Option("--bursts", help="Let a fifth of the edges come in bursts, many into one vertex.")
    ] = False,
    undirected: Annotated[bool, typer.Option("--undirected", help="Make the edges undirected.")] = False,
    seed: Seed = 0,
) -> None:
    """Write a synthetic stream of graph events to a Parquet file.

    The same options make the same events. The file has the columns of the event format, and the graph's
    schema in its metadata. [bold]d3gnn run[/bold] and [bold]d3gnn bench throughput --edges[/bold] read it.

    [bold]Examples[/bold]

      d3gnn generate stream.parquet --edges 1000000 --deletes 0.1 --seed 7

      d3gnn generate hard.parquet --shape communities --features --deletes 0.2 --bursts --bad 0.01
    """
    from d3gnn.sources import SyntheticStream

    with user_mistakes():
        stream = SyntheticStream(
            edges=edges, vertices=vertices, seed=seed, shape=shape.value, max_degree=max_degree,
            communities=communities, hubs=hubs, deletes=deletes, vertex_deletes=vertex_deletes,
            feature_updates=feature_updates, bursts=_BURST_SHARE if bursts else 0.0, bad=bad, late=late,
            features=features, feature_width=feature_width, undirected=undirected,
        )  # fmt: skip
        if out.is_dir():
            raise ValueError(f"{out} is a folder; give the name of a file in it")
        if not out.parent.is_dir():
            raise ValueError(f"the folder {out.parent} does not exist; create it first")
    with user_mistakes(OSError):
        _write(stream, out)
    what = f"{len(stream):,} events ({stream.edges:,} edges over {stream.vertices:,} vertices)"
    error_console().print(f"{out}: {what}, {out.stat().st_size / 1e6:,.1f} MB", soft_wrap=True)


def _write(stream: Any, out: Path) -> None:
    """Write under another name first, so that the file is complete once it has its name."""
    import pyarrow.parquet as pq

    from d3gnn.bench.workload import with_schema

    partial = out.with_name(f".{out.name}.partial")
    writer = None
    try:
        with steps() as bars:
            report = bars.step("generate", len(stream))
            done = 0
            for batch in stream.batches(_ROW_GROUP):
                table = with_schema(batch.to_arrow(), stream.schema)
                if writer is None:
                    writer = pq.ParquetWriter(partial, table.schema, compression="zstd")
                writer.write_table(table)
                done += len(batch)
                report(done)
        if writer is not None:
            writer.close()
        partial.replace(out)
    finally:
        if writer is not None and writer.is_open:
            writer.close()
        partial.unlink(missing_ok=True)
