"""The stream that a benchmark runs on, as options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from d3gnn.cli.options import SHARE, EdgesMode, ShapeName

if TYPE_CHECKING:
    from d3gnn.bench import Workload
    from d3gnn.events import EdgeMode

EdgeFile = Annotated[
    Path | None,
    typer.Option(help="Edge list (text or Parquet, gzipped or not) or event file.", metavar="FILE"),
]
Synthetic = Annotated[
    int | None, typer.Option(help="Or so many edges of a synthetic stream.", metavar="EDGES")
]
Shape = Annotated[ShapeName, typer.Option(help="Shape of the synthetic stream.")]
Vertices = Annotated[
    int, typer.Option(help="Vertices of the synthetic stream; 0 chooses by its edges.", metavar="N")
]
MaxDegree = Annotated[
    int, typer.Option(help="With --shape capped: most edges into a vertex, and out of it.", metavar="N")
]
Deletes = Annotated[
    float, typer.Option(help="Deletes in the synthetic stream, as a share of its edges.", metavar=SHARE)
]
FeatureUpdates = Annotated[
    float, typer.Option(help="Feature updates in it, as a share of its edges.", metavar=SHARE)
]
Limit = Annotated[int | None, typer.Option(help="Stop after so many events.", metavar="N")]
Mode = Annotated[
    EdgesMode | None,
    typer.Option(
        help="What makes two edges the same. Without it: simple if the file deletes some, else multi.",
        show_default=False,
    ),
]
Undirected = Annotated[bool, typer.Option("--undirected", help="Messages go both ways.")]


def stream_of(
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
    """The file's events, or those of a synthetic stream; features are as wide as the model."""
    from d3gnn.bench import file_workload, synthetic_workload
    from d3gnn.sources import SyntheticStream

    if (edges is None) == (synthetic is None):
        raise ValueError("give either --edges FILE or --synthetic EDGES")
    mode: EdgeMode | None = edges_mode.value if edges_mode else None
    if edges is not None:
        return file_workload(edges, mode, undirected, limit)
    assert synthetic is not None
    stream = SyntheticStream(
        synthetic, vertices, seed, shape.value, max_degree, deletes=deletes, feature_updates=feature_updates,
        feature_width=width, undirected=undirected,
    )  # fmt: skip
    return synthetic_workload(stream, mode).limited(limit)
