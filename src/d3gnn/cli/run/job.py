"""The job behind `d3gnn run`: start the pipeline, watch it, and report the result."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from d3gnn import __version__
from d3gnn.cli.console import span, status, user_mistakes
from d3gnn.cli.progress import Watch, observed
from d3gnn.cli.reports import Totals
from d3gnn.cli.run.display import Backlog, Display
from d3gnn.cli.run.inputs import Input, Inputs
from d3gnn.cli.run.recall import Memory, forget
from d3gnn.cli.spark import plain_errors, spark_session
from d3gnn.cli.stopping import Stopping, stop_signals
from d3gnn.events import GraphSchema
from d3gnn.kernel.alerts import Alerts
from d3gnn.kernel.windows import Clock, Windows
from d3gnn.nn import GNN, PairHead
from d3gnn.pipeline import StreamingGNN
from d3gnn.private import private_folder
from d3gnn.sources.stream import cut, stream_events, union_events
from d3gnn.store.store import SETTINGS, STORE, Store, StoreError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from d3gnn.sources.files import Files
    from d3gnn.spark.restarting import RestartingQuery

#: A batch takes files of a folder until they have this many bytes.
_BATCH_BYTES = 16 << 20
_LOG, _PIECES = "spark.log", "pieces"


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    totals: Totals
    seconds: float
    restarted: int
    #: Whether all input was processed.
    finished: bool
    #: Vertices with changes that windows hold back.
    pending: int
    #: What the rows of the output are: embeddings, predictions or scores of pairs.
    kind: str
    output: Path
    checkpoint: Path
    #: URI of the store.
    store: str
    #: 0, unless a signal ended the run before all input was read.
    exit_code: int

    @property
    def verified(self) -> str:
        """What `d3gnn verify` takes: the checkpoint, if the store is in it."""
        in_checkpoint = self.store == str(self.checkpoint.resolve() / STORE)
        return str(self.checkpoint) if in_checkpoint else self.store

    @property
    def dead_letters(self) -> str:
        return f"{self.store}/dead_letters"

    def to_dict(self) -> dict[str, Any]:
        """The object that --json prints."""
        totals = self.totals
        return {
            "command": "run",
            "version": __version__,
            "finished": self.finished,
            "events": totals.events,
            "batches": totals.batches,
            "last_batch": None if totals.last is None else totals.last.number,
            "rows": totals.rows,
            "tombstones": totals.tombstones,
            "late": totals.late,
            "pending": self.pending,
            "vertices": totals.vertices,
            "lacking": totals.lacking,
            "dead_letters": totals.dead.total(),
            "dead_letter_reasons": dict(totals.dead),
            "seconds": round(self.seconds, 3),
            "restarted": self.restarted,
            "output": str(self.output),
            "checkpoint": str(self.checkpoint),
        }


@dataclass(frozen=True)
class Job:
    """A pipeline and its inputs."""

    inputs: Inputs
    memory: Memory
    output: Path
    checkpoint: Path
    store: str
    gnn: StreamingGNN
    batch_files: int | None
    #: Seconds between looks for new files; None to end when all files are read.
    every: float | None
    #: The Spark cluster to run on, None for this machine, and settings for it.
    master: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def plan(
        inputs: Inputs,
        memory: Memory,
        output: Path,
        checkpoint: Path,
        store: str,
        model: GNN,
        *,
        parts: int,
        partitioner: str,
        schema: GraphSchema,
        on_dead_letter: str,
        batch_files: int | None,
        every: float | None,
        window: Windows = None,
        clock: Clock = "batch",
        alerts: Alerts | None = None,
        arrays: Path | None = None,
        master: str | None = None,
        settings: Mapping[str, str] | None = None,
        tasks: int | None = None,
        adopt: bool = False,
    ) -> Job:
        """Check everything that can be checked before Spark starts."""
        if not checkpoint.exists():
            private_folder(checkpoint)  # it has copies of the input, too
        stored = Store(store)
        exists = stored.exists(SETTINGS)
        gnn = StreamingGNN(
            model,
            name=stored.settings["name"] if adopt else "pipeline",
            store=store,
            adopt=adopt,
            parts=parts,
            partitioner=partitioner,
            schema=schema,
            on_dead_letter=on_dead_letter,
            window=window,
            clock=clock,
            alerts=alerts,
            arrays=arrays,
            tasks=tasks,
        )
        if exists:
            files = [found.files for found in memory.found.values()]
            keys = {of.columns.get(of.roles.get("key", "")) for of in files}
            with user_mistakes(StoreError):
                gnn.plan({"src": files[0].ids, "key": "string" if "string" in keys else "bigint"})
        return Job(
            inputs, memory, output, checkpoint, store, gnn, batch_files, every, master, settings or {}
        )  # fmt: skip

    @property
    def rows(self) -> str:
        """What the rows of the output are."""
        head = self.gnn.model.head
        if head is None:
            return "embeddings"
        return "scores of pairs" if isinstance(head, PairHead) else "predictions"

    def windows(self) -> str:
        """The windows and their clock; empty without windows."""
        reduce, forward = self.gnn.config.windows
        if reduce is None and forward is None:
            return ""
        text = f"windows: {reduce}"
        if reduce != forward:
            text = f"windows: {reduce} at edges, {forward} at vertices"
        if self.gnn.config.clock == "batch":
            return text
        text = f"{text}, by event time"
        for found in self.memory.found.values():
            name = found.files.roles.get("time", "")
            if found.files.columns.get(name) == "bigint" and self.inputs.ts_unit is None:
                return f"{text}; integers in {name} are microseconds, unless --ts-unit is given"
        return text

    def run(self, console: Console) -> Result:
        """Run until all is read, or until the user stops it."""
        begun = time.monotonic()
        with ExitStack() as stack:
            log = self.checkpoint / _LOG
            stack.enter_context(plain_errors(log))
            with status(console, "starting Spark ..."):
                spark = stack.enter_context(spark_session(log, self.master, self.settings))
                files = [self._files(spark, one) for one in self.inputs.inputs]
                stopping = stack.enter_context(stop_signals())
                running = self._start(spark, files)
            totals, finished = self._watch(running, [Path(of.path) for of in files], stopping, console)
        seconds = time.monotonic() - begun
        pending = self._pending(totals)
        return Result(
            totals, seconds, running.restarted, finished, pending, self.rows, self.output, self.checkpoint,
            self.store, 0 if finished or self.every is not None else stopping.exit_code,
        )  # fmt: skip

    def _files(self, spark: SparkSession, one: Input) -> Files:
        """The files of an input, or the pieces of one that is too large for a batch."""
        files, size = self.memory.found[one.name].files, one.size_of_piece(self.inputs.batch)
        if size is None:
            return files
        return cut(spark, files, self.checkpoint.resolve() / _PIECES / one.name, size)

    def _events(self, spark: SparkSession, files: list[Files]) -> DataFrame:
        streams = [
            stream_events(spark, of, **self._limits(one))
            for one, of in zip(self.inputs.inputs, files, strict=True)
        ]
        return union_events(streams, files)

    def _limits(self, one: Input) -> dict[str, int]:
        """Spark's limits of what a batch takes from an input."""
        if one.size_of_piece(self.inputs.batch) is not None:
            return {"maxFilesPerTrigger": 1}
        if self.batch_files is not None:
            return {"maxFilesPerTrigger": self.batch_files}
        return {"maxBytesPerTrigger": _BATCH_BYTES}

    def _start(self, spark: SparkSession, files: list[Files]) -> RestartingQuery:
        trigger: dict[str, Any] = {"availableNow": True}
        if self.every is not None:
            trigger = {"processingTime": f"{round(self.every * 1000)} milliseconds"}
        events = observed(self._events(spark, files))
        output, checkpoint = self.output.resolve(), self.checkpoint.resolve()
        # Saved first, so that a checkpoint can be continued whenever the process dies.
        self.memory.save(checkpoint)
        try:
            return self.gnn.start(events, output, checkpoint=checkpoint, **trigger)
        except BaseException:
            forget(checkpoint)
            raise

    def _watch(
        self, running: RestartingQuery, folders: list[Path], stopping: Stopping, console: Console
    ) -> tuple[Totals, bool]:
        totals, asked_after, drained_at = Totals(), None, -1
        paths = ", ".join(str(one.path) for one in self.inputs.inputs)
        title = f"{'following' if self.every is not None else 'reading'} {paths}"
        display = Display(console, title, self.rows, Backlog(folders, self.checkpoint))
        with display.shown():
            watch = Watch(running, self.store)
            for new in watch.batches():
                for report in new:
                    totals.add(report)
                display.update(totals, new, self._doing(running, totals, stopping), running.restarted)
                if not stopping.asked:
                    continue
                if asked_after is None:
                    asked_after = watch.ended()
                if watch.reported() > asked_after or not running.status["isTriggerActive"]:
                    if not self._has_to_drain(totals):
                        running.stop()
                        return totals, False
                    if totals.batches > drained_at:
                        self.gnn.drain()
                        drained_at = totals.batches
        return totals, True

    def _pending(self, totals: Totals) -> int:
        """Vertices with pending changes after the last batch."""
        return self.gnn.pending() if totals.last is None else totals.last.pending

    def _has_to_drain(self, totals: Totals) -> bool:
        """Whether changes are pending that only a drain flushes; a run that ends by itself flushes all."""
        return self.every is not None and self._pending(totals) > 0

    def _doing(self, running: RestartingQuery, totals: Totals, stopping: Stopping) -> str:
        if stopping.asked and self._has_to_drain(totals):
            return "flushing windows, then stopping (Ctrl-C again: stop at once) ..."
        if stopping.asked:
            return "stopping after this batch (Ctrl-C again: stop at once) ..."
        if rebuilding := running.rebuilding():
            return f"{rebuilding} ..."
        if not totals.batches:
            return "first batch: starting workers (10 s; minutes if code has to be compiled) ..."
        if self.every is not None and not running.status["isDataAvailable"]:
            return "waiting for new files (Ctrl-C to stop) ..."
        return f"batch {totals.last.number + 1 if totals.last else 0} ..."


def summary(result: Result, console: Console) -> None:
    """What was done, where the output is, and what to do next."""
    totals = result.totals
    state = "[bold green]done" if result.finished else "[bold]stopped"
    console.print(
        f"{state}[/] after {span(result.seconds)}: {totals.events:,} events in {totals.batches:,} batches, "
        f"{totals.rows:,} rows written ({result.kind}, {totals.tombstones:,} tombstones)",
        soft_wrap=True,
    )
    if not (totals.events or totals.rows):
        console.print("no new input: each file is read once, so write new events to new files")
    if result.pending:
        console.print(f"{result.pending:,} changes are pending in windows; the next run flushes them")
    if totals.dead:
        console.print(f"{totals.dead.total():,} dead letters in {result.dead_letters}", soft_wrap=True)
        for reason, count in totals.dead.most_common():
            console.print(f"  {count:>9,}  {reason}", soft_wrap=True, markup=False)
    else:
        console.print("no dead letters")
    console.print(f"table: {result.output} (d3gnn.latest reads the newest row of each id)", soft_wrap=True)
    if not result.finished:
        console.print("run the same command again to continue")
    console.print(f"next: d3gnn verify --checkpoint {result.verified}", soft_wrap=True, markup=False)
