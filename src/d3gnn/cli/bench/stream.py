"""Options of benchmarks that several commands share, and the workload that they describe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from d3gnn.cli.options import SHARE, EdgesMode, EngineName, ShapeName

if TYPE_CHECKING:
    from d3gnn.bench import Workload
    from d3gnn.events import EdgeMode

EdgeFile = Annotated[
    Path | None,
    typer.Option(help="Edge list (text or Parquet, optionally gzipped) or event file.", metavar="FILE"),
]
Synthetic = Annotated[
    int | None,
    typer.Option(help="Number of edges of a synthetic stream, instead of --edges.", metavar="EDGES"),
]
Shape = Annotated[ShapeName, typer.Option(help="Shape of the synthetic stream.")]
Vertices = Annotated[
    int,
    typer.Option(
        help="Vertices of the synthetic stream; 0 derives it from the number of edges.", metavar="N"
    ),
]
MaxDegree = Annotated[
    int, typer.Option(help="Largest in-degree and out-degree, with --shape capped.", metavar="N")
]
Deletes = Annotated[
    float,
    typer.Option(help="Edge deletes in the synthetic stream, as a fraction of its edges.", metavar=SHARE),
]
FeatureUpdates = Annotated[
    float,
    typer.Option(help="Feature updates in the synthetic stream, as a fraction of its edges.", metavar=SHARE),
]
Limit = Annotated[int | None, typer.Option(help="Read at most this many events.", metavar="N")]
Mode = Annotated[
    EdgesMode | None,
    typer.Option(
        help="Identity of edges. Default: simple if the file deletes edges, else multi.",
        show_default=False,
    ),
]
Undirected = Annotated[bool, typer.Option("--undirected", help="Send messages in both directions.")]
Engine = Annotated[EngineName, typer.Option(help="The engine to run: LocalEngine, or Spark.")]
Check = Annotated[bool, typer.Option(help="Compare final embeddings with recomputation from scratch.")]


def load_workload(
    edges: Path | None,
    synthetic: int | None,
    *,
    shape: ShapeName,
    vertices: int = 0,
    max_degree: int = 16,
    deletes: float = 0.0,
    feature_updates: float = 0.0,
    width: int = 64,
    limit: int | None = None,
    edges_mode: EdgesMode | None = None,
    undirected: bool = False,
    seed: int = 0,
) -> Workload:
    """The events of the file, or of a synthetic stream with features of the model's width."""
    from d3gnn.bench import file_workload, synthetic_workload
    from d3gnn.sources import SyntheticStream

    if (edges is None) == (synthetic is None):
        raise ValueError("give either --edges FILE or --synthetic EDGES")
    mode: EdgeMode | None = edges_mode.value if edges_mode else None
    if edges is not None:
        return file_workload(edges, mode, undirected, limit)
    assert synthetic is not None
    synthetic_stream = SyntheticStream(
        synthetic, vertices, seed, shape.value, max_degree, deletes=deletes, feature_updates=feature_updates,
        feature_width=width, undirected=undirected,
    )  # fmt: skip
    return synthetic_workload(synthetic_stream, mode).limited(limit)
