"""The commands that `d3gnn bench report` runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

#: Files of real streams by name, with the options for their edge mode and direction.
_FILES = {
    "ogbn-arxiv": ("ogbn-arxiv/edges_by_year.csv.gz", []),
    "sx-mathoverflow": ("sx-mathoverflow.txt.gz", []),
    "higgs": ("higgs-activity_time.txt.gz", []),
    "as-733": ("as-733/as-733-events.csv.gz", ["--edges-mode", "simple", "--undirected"]),
}
_BIG, _BIG_VERTICES = 20_500_000, 2_000_000
_SMALL = 1_000_000


def suite(data: Path | None, *, quick: bool = False) -> Iterator[list[str]]:
    """The arguments of each `d3gnn bench` command of the report.

    `data` is the folder of real streams; synthetic streams replace those that are missing. `quick` leaves out
    the graphs of 20 million edges.
    """
    main = _stream(data, "ogbn-arxiv") or ["--synthetic", str(_SMALL)]
    for batch, limit in ((1, 30_000), (100, 300_000), (2_000, None), (20_000, None), (100_000, None)):
        first = ["--limit", str(limit)] if limit else []
        yield ["throughput", *main, *first, "--batch", str(batch)]
    for name in list(_FILES)[1:]:
        if (stream := _stream(data, name)) is not None:
            yield ["throughput", *stream, "--batch", "2000"]
    mixed = ["--synthetic", "300000", "--deletes", "0.1", "--feature-updates", "0.1"]
    yield ["throughput", *mixed, "--batch", "2000"]
    changing = _stream(data, "as-733") or ["--synthetic", "100000", "--deletes", "0.4"]
    yield ["models", *changing, "--batch", "2000"]
    batches = ["--batch", "1", "--batch", "2000", "--batch", "20000"]
    yield ["peers", *main, *batches]
    yield ["peers", *main, "--batch", "100000", "--systems", "pyg_full,local,spark"]
    yield [
        "peers",
        *mixed,
        "--batch",
        "2000",
        "--systems",
        "dgl_full,dgl_influenced,pyg_influenced,ripple,local",
    ]
    yield ["stages", *main, "--batch", "20000", "--timed", "20", "--warm-up", "60"]
    small = _stream(data, "sx-mathoverflow") or ["--synthetic", "200000"]
    yield ["windows", *small, "--batch", "500", "--parts", "4"]
    for name in ("sx-mathoverflow", "ogbn-arxiv"):
        of_file = _stream(data, name) or ["--edges-count", "200000"]
        yield ["partitioners", *of_file]
    yield ["expiry"]
    yield ["recovery"]
    yield ["latency", "--rate", "10000", "--seconds", "30" if quick else "40"]
    yield ["growth", "--stored", "100000,1000000"]
    if quick:
        return
    big = ["--synthetic", str(_BIG), "--vertices", str(_BIG_VERTICES), "--batch", "2000", "--batch", "20000"]
    yield ["peers", *big, "--shape", "capped", "--max-degree", "40", "--systems", "dgl_full,spark"]
    # A tenth of the edges: R-MAT with 20 million edges takes 7 minutes more.
    hubs = ["--synthetic", str(_BIG // 10), "--vertices", str(_BIG_VERTICES // 10), *big[4:]]
    yield ["peers", *hubs, "--shape", "rmat", "--systems", "dgl_full,spark"]
    yield [
        "growth",
        "--stored",
        "1000000,20000000",
        "--engine",
        "spark",
        "--parts",
        "2",
        "--max-degree",
        "40",
    ]


def _stream(data: Path | None, name: str) -> list[str] | None:
    file, options = _FILES[name]
    if data is None or not (data / file).is_file():
        return None
    return ["--edges", str(data / file), *options]
