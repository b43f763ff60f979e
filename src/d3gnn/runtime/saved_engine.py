"""An engine in a folder: its model, its graph as Parquet, and its settings as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from d3gnn.events import EventBatch, GraphSchema
from d3gnn.events.event import NO_TIME
from d3gnn.kernel.alerts import Alerts
from d3gnn.kernel.log import LogEntry
from d3gnn.kernel.partitioners import make_partitioner
from d3gnn.kernel.windows import make_window
from d3gnn.kernel.windows.clock import Clocks
from d3gnn.nn.model import GNN
from d3gnn.private import private_folder
from d3gnn.runtime.local_coordinator import LocalCoordinator

if TYPE_CHECKING:
    from d3gnn.runtime.local import LocalEngine

FORMAT = "d3gnn-engine-2"
_SETTINGS, _MODEL, _GRAPH = "engine.json", "model.safetensors", "graph.parquet"


class SavedEngine(NamedTuple):
    """What is needed to build an engine again."""

    model: GNN
    #: The other arguments of `LocalEngine`.
    arguments: dict[str, Any]
    batch: int
    clocks: Clocks
    #: The types of ids and edge keys.
    types: Any
    graph: LogEntry | None
    #: The newest event time, by which edges expire.
    watermark: int = NO_TIME

    @staticmethod
    def read(folder: Path) -> SavedEngine:
        """From the folder that `save_engine` wrote."""
        try:
            settings = json.loads((folder / _SETTINGS).read_text())
        except FileNotFoundError:
            raise FileNotFoundError(
                f"no engine at {folder}: save one there with engine.save(folder)"
            ) from None
        if settings.get("format") != FORMAT:
            raise ValueError(
                f"{folder} holds an engine of another release, in the format {settings.get('format')!r} "
                f"instead of {FORMAT!r}: build the engine again from its events"
            )
        arguments = {
            "parts": settings["parts"],
            "partitioner": make_partitioner(**settings["partitioner"]),
            "schema": GraphSchema(**{"missing": "hash", **settings["schema"]}),
            "window": tuple(window and make_window(**window) for window in settings["windows"]),
            "clock": settings["clock"],
            "min_change": settings["min_change"],
            "alerts": settings["alerts"] and Alerts(**settings["alerts"]),
            "emit": settings["emit"],
        }
        graph = None
        if (folder / _GRAPH).exists():
            table = pq.read_table(folder / _GRAPH)
            part = np.asarray(table["part"]).astype(np.int32)
            graph = LogEntry(EventBatch.from_arrow(table.drop_columns("part")), part)
        return SavedEngine(
            GNN.load(folder / _MODEL), arguments, settings["batch"], Clocks(**settings["clocks"]),
            settings["types"], graph, settings.get("watermark", NO_TIME),
        )  # fmt: skip


def save_engine(engine: LocalEngine, coordinator: LocalCoordinator, folder: Path) -> None:
    """Write an engine, with nothing pending, to a folder."""
    if not folder.exists():
        private_folder(folder)
    engine.model.save(folder / _MODEL)
    graph = coordinator.snapshot()
    if graph is not None:
        table = graph.events.to_arrow().append_column("part", pa.array(graph.part))
        pq.write_table(table, folder / _GRAPH)
    else:  # an earlier engine in this folder may have left one
        (folder / _GRAPH).unlink(missing_ok=True)
    config, partitioner = engine.config, engine.partition.partitioner
    settings = {
        "format": FORMAT,
        "parts": config.parts,
        "partitioner": {"name": partitioner.name, **asdict(partitioner)},
        "schema": config.schema.to_dict(),
        "windows": [window and window.to_dict() for window in config.windows],
        "clock": config.clock,
        "min_change": config.min_change,
        "alerts": config.alerts and asdict(config.alerts),
        "emit": config.emit,
        "batch": engine.batch,
        "clocks": coordinator.clocks._asdict(),
        "types": engine.partition.types,
        "watermark": engine.partition.watermark,
    }
    (folder / _SETTINGS).write_text(json.dumps(settings, indent=2) + "\n")
