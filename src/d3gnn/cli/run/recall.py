"""What the first start of a run stores beside the checkpoint, so that later starts read in the same way."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from d3gnn.cli.run.inputs import Inputs
from d3gnn.runtime.plan import absolute
from d3gnn.sources.files import Files, Found
from d3gnn.store.graph_log import open_store
from d3gnn.store.store import FORK, STORE

#: The key of the graph's schema in the metadata of a Parquet file.
SCHEMA_KEY = b"d3gnn.schema"
_FILE = "run.json"


@dataclass(frozen=True)
class Memory:
    """The options of the first start, and what it found in the inputs."""

    options: dict[str, Any]
    output: str
    #: By the names of the inputs.
    found: dict[str, Found]

    @staticmethod
    def load(checkpoint: Path) -> Memory | None:
        """None before the first start."""
        path = checkpoint / _FILE
        if path.exists():
            read = json.loads(path.read_text())
            found = {name: _found(**of) for name, of in read["inputs"].items()}
            return Memory(read["options"], read["output"], found)
        # A store that no query has used is a fork.
        used = (checkpoint / "graph").exists() and not (checkpoint / "graph" / FORK).exists()
        if (checkpoint / "metadata").exists() or used:
            raise ValueError(
                f"--checkpoint {checkpoint} belongs to a query that `d3gnn run` did not start; "
                "give another folder"
            )
        return None

    def save(self, checkpoint: Path) -> None:
        """Write the file whole, or not at all."""
        content = {
            "options": self.options,
            "output": self.output,
            "inputs": {name: _stored(found) for name, found in self.found.items()},
        }
        path = checkpoint / _FILE
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(content, indent=2) + "\n")
        partial.replace(path)

    def lines(self, again: bool) -> Iterator[str]:
        """How each input is read, one line for each."""
        for name, found in self.found.items():
            source = "" if len(self.found) == 1 else f" in {name}"
            yield f"{'as before' if again else 'found'}{source}: {found.files}"


def _stored(found: Found) -> dict[str, Any]:
    schema = found.metadata.get(SCHEMA_KEY)
    return {
        "files": asdict(found.files),
        "width": found.width,
        "schema": None if schema is None else schema.decode(),
    }


def _found(files: Mapping[str, Any], width: int, schema: str | None) -> Found:
    return Found(Files(**files), width, {} if schema is None else {SCHEMA_KEY: schema.encode()})


def forget(checkpoint: Path) -> None:
    """Let the next start choose its options again, if no batch has been planned yet."""
    if not (checkpoint / "offsets").exists():
        (checkpoint / _FILE).unlink(missing_ok=True)


def store_of_run(checkpoint: Path, adopted: Path | None) -> str:
    """The store: that in the checkpoint, or the one of the pipeline whose graph the run takes over."""
    if adopted is None:
        return str(checkpoint.resolve() / STORE)
    store = open_store(absolute(adopted)).uri
    if store == str(checkpoint.resolve() / STORE):
        raise ValueError(f"--adopt {adopted}: it is the store of --checkpoint; give another checkpoint")
    return store


def recall_or_look(
    inputs: Inputs, output: Path, checkpoint: Path, adopted: str | None = None
) -> tuple[Memory, bool]:
    """How to read the inputs: as at the first start (True), or if this is the first, as the files are.

    `adopted` is the store that the run takes over, if it does.
    """
    _check_folders(inputs, output, checkpoint)
    memory, options = Memory.load(checkpoint), inputs.record() | {"adopt": adopted}
    if memory is None:
        if output.is_dir() and any(output.iterdir()):
            raise ValueError(f"--output {output} has files already; give a new folder for a new checkpoint")
        return Memory(options, str(output.resolve()), inputs.look()), False
    before = memory.options | {"output": memory.output}
    now = options | {"output": str(output.resolve())}
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            was, wanted = _text(before.get(name)), _text(now.get(name))
            raise ValueError(
                f"{checkpoint} was started with {name} {was}, not {wanted}; "
                "repeat the options, or start again with another --checkpoint and --output"
            )
    return memory, True


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{size} for {name}" for name, size in value.items())
    return "not given" if value is None else str(value)


def _check_folders(inputs: Inputs, output: Path, checkpoint: Path) -> None:
    for option, folder in (("--output", output), ("--checkpoint", checkpoint)):
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{option} {folder} is a file; give a folder")
        for one in inputs.inputs:
            if one.path.is_dir() and folder.resolve().is_relative_to(one.path.resolve()):
                raise ValueError(
                    f"{option} {folder} is inside the input folder {one.path}, where it would be read as "
                    "input; give a folder elsewhere"
                )
    if output.resolve() == checkpoint.resolve():
        raise ValueError("--output and --checkpoint are the same folder; give one for each")
