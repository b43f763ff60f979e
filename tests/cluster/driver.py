"""A driver on a cluster: `python driver.py MASTER SETTINGS`, where SETTINGS are of the session, as JSON.

It reads calls from its standard input, one JSON object a line, and answers each with one on the file that the
environment names as ANSWERS.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from d3gnn import GraphSchema, metrics, session
from d3gnn.nn.models import sage_from_widths
from d3gnn.testing import random_batches
from d3gnn.testing.pipelines import PipelineRun
from d3gnn.windows import Tumbling


class Calls:
    """What a test may ask for. Runs are by folder."""

    def __init__(self, master: str, settings: dict[str, str]) -> None:
        self.spark = session(master, "cluster", **settings)
        self.runs: dict[str, PipelineRun] = {}

    def open(self, folder: str, parts: int, window: float = 0.0, **settings: Any) -> None:
        """Open a run, whose later batches follow on those that its folder has."""
        schema = GraphSchema(features={"x": 3})
        if window:
            settings["window"] = Tumbling(window)
        self.runs[folder] = PipelineRun(
            self.spark, folder, schema, parts, model=sage_from_widths((3, 4, 2), seed=1), **settings,
        )  # fmt: skip

    def read(self, folder: str, **stream: int) -> None:
        """Take over from an earlier driver, which has written these batches, and may have died."""
        files = self.runs[folder].checker.files
        vars(files)["write"] = lambda batch: None
        self.write(folder, **stream)
        del vars(files)["write"]

    def write(self, folder: str, batches: int, seed: int = 4, size: int = 40) -> None:
        """Write batches of random events, deletes among them."""
        schema = GraphSchema(features={"x": 3})
        self.runs[folder].write(
            *random_batches(
                schema, seed=seed, n_batches=batches, batch_size=size, n_vertices=30, delete_vertex=0.05
            )
        )

    def run(self, folder: str, restarts: int = 0) -> dict[str, Any]:
        """Process everything; returns what the batches and the run have reported."""
        running = self.runs[folder].start(restarts=restarts)
        running.awaitTermination()
        batches = [metrics(progress) for progress in running.recentProgress]
        return {
            "refreshes": sum(batch.get("partition", {}).get("refreshed", 0) for batch in batches),
            "batches": len(batches),
            "restarted": running.restarted,
        }

    def check(self, folder: str, drained: bool = False) -> None:
        """Compare the output, and the state on all machines, with the oracle."""
        run = self.runs[folder]
        run.check_drained() if drained else run.check()

    def fixed_streams(self, folder: str, parts: int) -> dict[str, tuple[int, int]]:
        """Run every fixed stream; returns how often each has rebuilt its state, and how often it may."""
        module, found = _module("test_fixed_streams"), {}
        for number, (name, stream) in enumerate(module.STREAMS.items()):
            place = Path(folder) / str(number)
            [run] = module.pipelines_of(stream, self.spark, place, [parts])
            module.run_all(stream, [run])
            run.check()
            found[name] = (
                len(list((place / str(parts) / "store" / "epochs").iterdir())),
                len(module.runs_of(stream)),
            )
        return found

    def same_rows(self, folder: str, kind: str) -> None:
        """Compare the rows of a model with a head with those of LocalEngine."""
        _module("test_hosts").test_the_same_columns_and_rows(self.spark, Path(folder), kind, "all")


def _module(name: str) -> Any:
    """A module of the tests on one machine."""
    path = Path(__file__).parents[1] / "spark" / f"{name}.py"
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(master: str, settings: str) -> None:
    calls = Calls(master, json.loads(settings))
    with Path(os.environ["ANSWERS"]).open("a") as answers:
        print("{}", file=answers, flush=True)
        for line in sys.stdin:
            name, arguments = json.loads(line)
            try:
                answer = {"value": getattr(calls, name)(**arguments)}
            except Exception:
                answer = {"error": traceback.format_exc()}
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
