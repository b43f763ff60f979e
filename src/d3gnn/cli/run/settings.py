"""What a run is to do: from the options, from the files, and from what was written down when it began."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from d3gnn.events import EdgeMode, GraphSchema
from d3gnn.sources import EdgeListError
from d3gnn.sources.files import Files, Found, look

if TYPE_CHECKING:
    from d3gnn.kernel.alerts import Alerts
    from d3gnn.nn import GNN

_MEMORY = "run.json"
_METADATA = b"d3gnn.schema"
_HIDDEN_WIDTHS = (64, 32)
_DEFAULT_WIDTH = 16
#: A single file larger than this is cut, unless told otherwise: a batch has to fit into memory.
CUT_BYTES = 8 << 20
CUT_EVENTS = 100_000


@dataclass(frozen=True)
class Source:
    """What is read, and how that was asked for."""

    path: Path
    format: str | None
    #: Columns of the files, by their names in the event format.
    names: Mapping[str, str]
    ids: str | None
    #: Events in a batch, for a single file.
    batch: int | None
    #: What times that are whole numbers count.
    ts_unit: str | None = None

    def check(self, follow: bool, batch_files: int | None, every: float) -> None:
        """Whether this fits the rest of the options."""
        if every < 0:
            raise ValueError(f"--every {every}: 0 seconds or more, please")
        if self.batch is not None and self.batch < 1:
            raise ValueError(f"--batch {self.batch}: at least 1 event, please")
        if batch_files is not None and batch_files < 1:
            raise ValueError(f"--batch-files {batch_files}: at least 1 file, please")
        if self.path.is_dir() and self.batch is not None:
            raise ValueError(
                "--batch cuts a single file; for a folder, --batch-files says how many at a time"
            )
        if self.path.is_file() and follow:
            raise ValueError(f"--follow waits for new files in a folder, but {self.path} is a file")

    def cut_to(self) -> int | None:
        """Events in each piece of a file that has to be cut."""
        if self.batch is None and self.path.is_file() and self.path.stat().st_size > CUT_BYTES:
            return CUT_EVENTS
        return self.batch

    def asked(self) -> dict[str, Any]:
        """As it is written down."""
        names = {"ts" if role == "time" else role: name for role, name in self.names.items()}
        asked = {"input": str(self.path.resolve()), "format": self.format, "ids": self.ids}
        asked["ts-unit"] = self.ts_unit
        # What is done counts, not what was said: a file that has grown beyond a batch must not come twice.
        return {**asked, "batch": self.cut_to(), **names}


@dataclass(frozen=True)
class Memory:
    """What the first start wrote beside the checkpoint, so that later ones read in the same way."""

    asked: dict[str, Any]
    output: str
    found: Found

    @staticmethod
    def load(checkpoint: Path) -> Memory | None:
        """None where nothing has begun yet."""
        path = checkpoint / _MEMORY
        if path.exists():
            read = json.loads(path.read_text())
            schema = read["schema"]
            metadata = {} if schema is None else {_METADATA: schema.encode()}
            return Memory(
                read["asked"], read["output"], Found(Files(**read["files"]), read["width"], metadata)
            )
        if (checkpoint / "metadata").exists() or (checkpoint / "graph").exists():
            raise ValueError(
                f"{checkpoint} is the checkpoint of another query, which `d3gnn run` did not begin; "
                "give another folder"
            )
        return None

    def save(self, checkpoint: Path) -> None:
        """Write it down whole, or not at all."""
        schema = self.found.metadata.get(_METADATA)
        content = {
            "asked": self.asked,
            "output": self.output,
            "files": asdict(self.found.files),
            "width": self.found.width,
            "schema": None if schema is None else schema.decode(),
        }
        path = checkpoint / _MEMORY
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(content, indent=2) + "\n")
        partial.replace(path)


def forget(checkpoint: Path) -> None:
    """Let the next start choose anew, where no batch has been planned yet."""
    if not (checkpoint / "offsets").exists():
        (checkpoint / _MEMORY).unlink(missing_ok=True)


def recall_or_look(source: Source, output: Path, checkpoint: Path) -> tuple[Memory, bool]:
    """How to read the input: as at the first start if there was one (True), else as the files tell."""
    if not source.path.exists():
        raise FileNotFoundError(f"{source.path} does not exist; give a file or a folder with events or edges")
    _check_folders(source.path, output, checkpoint)
    memory, asked = Memory.load(checkpoint), source.asked()
    if memory is None:
        if output.is_dir() and any(output.iterdir()):
            raise ValueError(f"{output} has files already; give a new folder for a new checkpoint")
        settled: dict[str, Any] = {"format": source.format, "ids": source.ids, "time_unit": source.ts_unit}
        found = look(source.path, names=source.names, **settled)
        return Memory(asked, str(output.resolve()), found), False
    before, now = (
        {**m, "output": o} for m, o in ((memory.asked, memory.output), (asked, str(output.resolve())))
    )
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            raise ValueError(
                f"{checkpoint} was begun with {name} {_said(before.get(name))}, not {_said(now.get(name))}; "
                "go on with the same options, or begin anew with another --checkpoint and --output"
            )
    return memory, True


def _said(value: Any) -> str:
    return "not given" if value is None else str(value)


def _check_folders(source: Path, output: Path, checkpoint: Path) -> None:
    for option, folder in (("--output", output), ("--checkpoint", checkpoint)):
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{option} {folder} is a file; give a folder")
        if source.is_dir() and folder.resolve().is_relative_to(source.resolve()):
            raise ValueError(
                f"{option} {folder} lies in the input folder, where it would be read; put it elsewhere"
            )
    if output.resolve() == checkpoint.resolve():
        raise ValueError("--output and --checkpoint are the same folder; give one for each")


# ------------------------------------------------------------------ the graph and the model


def graph_schema(
    found: Found,
    edges: str | None,
    undirected: bool,
    features: Mapping[str, int],
    edge_features: Mapping[str, int],
    label_width: int | None,
) -> GraphSchema:
    """As the options say; else as the file's metadata does."""
    try:
        schema = GraphSchema(**json.loads(found.metadata.get(_METADATA, b"{}")))
    except (TypeError, ValueError) as error:
        raise EdgeListError(f"{found.files.path} has a graph schema that cannot be read: {error}") from error
    if edges is None and "key" in found.files.roles and schema.edges == "simple":
        edges = "keyed"
    return replace(
        schema,
        edges=cast(EdgeMode, edges) if edges else schema.edges,
        directed=schema.directed and not undirected,
        features=features or schema.features,
        edge_features=edge_features or schema.edge_features,
        label_width=label_width or schema.label_width,
    )


def make_model(
    model: Path | None,
    widths: str | None,
    aggregator: str | None,
    seed: int | None,
    schema: GraphSchema,
    found: Found,
) -> GNN:
    """A model from its file, or a GraphSAGE from the options, as wide as the features."""
    from d3gnn.nn import GNN, GraphSAGE

    wanted = schema.width or found.width
    if model is not None:
        if widths or aggregator or seed is not None:
            raise ValueError(
                "--model has its own widths, aggregator and weights; leave out the other options"
            )
        made = GNN.load(model)
    else:
        numbers = _widths(widths) if widths else [wanted or _DEFAULT_WIDTH, *_HIDDEN_WIDTHS]
        made = GraphSAGE(numbers, aggregator or "mean", seed=seed or 0)
    if not schema.features and found.width and made.in_width != found.width:
        what = f"--model {model}" if model is not None else f"--widths {widths}"
        raise ValueError(
            f"{what}: the model takes {made.in_width} inputs, but the first value of a vertex has "
            f"{found.width} numbers; they must be as many"
        )
    return made


def _widths(text: str) -> list[int]:
    try:
        return [int(width) for width in text.split(",")]
    except ValueError:
        raise ValueError(f"--widths {text}: numbers with commas between, as in 16,64,32") from None


def declared(option: str, text: str | None) -> dict[str, int]:
    """Names and widths: `x=8,risk=1`."""
    try:
        pairs = [item.split("=") for item in text.split(",")] if text else []
        return {name.strip(): int(width) for name, width in pairs}
    except ValueError:
        raise ValueError(f"{option} {text}: names and widths, as in x=8,risk=1") from None


def make_alerts(threshold: float | None, classes: str | None, changed_class: bool) -> Alerts | None:
    """Which of what a head says comes out; None for all of it."""
    from d3gnn.kernel.alerts import Alerts

    if threshold is None and classes is None and not changed_class:
        return None
    try:
        numbers = None if classes is None else [int(number) for number in classes.split(",")]
    except ValueError:
        raise ValueError(f"--classes {classes}: numbers of classes from 0 on, as in 1,2") from None
    return Alerts(threshold, numbers, changed_class)
