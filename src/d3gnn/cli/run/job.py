"""The job behind `d3gnn run`: start the pipeline, watch it, and tell what came of it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from d3gnn import __version__
from d3gnn.cli.console import saying, span, user_mistakes
from d3gnn.cli.progress import Watch, observed
from d3gnn.cli.reports import Totals
from d3gnn.cli.run.display import Backlog, Display
from d3gnn.cli.run.settings import Memory, Source, forget
from d3gnn.cli.spark import plain_errors, spark_session
from d3gnn.cli.stopping import Stopping, stop_signals
from d3gnn.events import GraphSchema
from d3gnn.kernel.alerts import Alerts
from d3gnn.kernel.windows import Clock, Windows
from d3gnn.nn import GNN
from d3gnn.pipeline import StreamingGNN
from d3gnn.sources.stream import cut, stream_events
from d3gnn.spark.runtime import STORE
from d3gnn.spark.store import StoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from d3gnn.sources.files import Files
    from d3gnn.spark.supervise import Supervised

#: Of a folder, a batch takes files until they have so many bytes.
_BATCH_BYTES = 16 << 20
_LOG, _PIECES = "spark.log", "pieces"


@dataclass(frozen=True)
class Result:
    """What a run has done, from its start to its end."""

    totals: Totals
    seconds: float
    restarted: int
    #: Whether all that was there has been taken in.
    finished: bool
    #: Vertices that wait in windows.
    pending: int
    output: Path
    checkpoint: Path

    @property
    def dead_letters(self) -> Path:
        return self.checkpoint / STORE / "dead_letters"

    def to_dict(self) -> dict[str, Any]:
        """For machines."""
        totals = self.totals
        return {
            "command": "run",
            "version": __version__,
            "finished": self.finished,
            "events": totals.events,
            "batches": totals.batches,
            "last_batch": None if totals.last is None else totals.last.number,
            "embeddings": totals.embeddings,
            "tombstones": totals.tombstones,
            "late": totals.late,
            "pending": self.pending,
            "dead_letters": totals.dead.total(),
            "dead_letter_reasons": dict(totals.dead),
            "seconds": round(self.seconds, 3),
            "restarted": self.restarted,
            "output": str(self.output),
            "checkpoint": str(self.checkpoint),
        }


@dataclass(frozen=True)
class Job:
    """A pipeline and what it is to read."""

    source: Source
    memory: Memory
    output: Path
    checkpoint: Path
    gnn: StreamingGNN
    limits: dict[str, int]
    #: Seconds between looks for new files; None for an end when all files are read.
    every: float | None

    @staticmethod
    def plan(
        source: Source,
        memory: Memory,
        output: Path,
        checkpoint: Path,
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
    ) -> Job:
        """Check all that can be checked before Spark is there."""
        checkpoint.mkdir(parents=True, exist_ok=True)
        store = checkpoint.resolve() / STORE
        gnn = StreamingGNN(
            model,
            store=store,
            parts=parts,
            partitioner=partitioner,
            schema=schema,
            on_dead_letter=on_dead_letter,
            window=window,
            clock=clock,
            alerts=alerts,
        )
        if (store / "settings.json").exists():
            files = memory.found.files
            key = files.columns.get(files.roles.get("key", ""), "bigint")
            with user_mistakes(StoreError):
                gnn.plan({"src": files.ids, "key": "string" if key == "string" else "bigint"})
        if source.cut_to() is not None:
            limits = {"maxFilesPerTrigger": 1}
        elif batch_files is not None:
            limits = {"maxFilesPerTrigger": batch_files}
        else:
            limits = {"maxBytesPerTrigger": _BATCH_BYTES}
        return Job(source, memory, output, checkpoint, gnn, limits, every)

    def windows(self) -> str:
        """What waits where, and by which clock; nothing where nothing waits."""
        reduce, forward = self.gnn.reduce, self.gnn.forward
        if reduce is None and forward is None:
            return ""
        said = (
            f"windows: {reduce}"
            if reduce == forward
            else f"windows: {reduce} at edges, {forward} at vertices"
        )
        if self.gnn.clock == "batch":
            return said
        files = self.memory.found.files
        name = files.roles.get("time", "")
        if files.columns.get(name) != "bigint" or self.source.ts_unit is not None:
            return f"{said}, by event time"
        return (
            f"{said}, by event time; whole numbers in {name} count as microseconds, unless --ts-unit is given"
        )

    def run(self, console: Console) -> Result:
        """Until all is read, or until the user has enough."""
        begun = time.monotonic()
        with ExitStack() as stack:
            log = self.checkpoint / _LOG
            stack.enter_context(plain_errors(log))
            with saying(console, "starting Spark ..."):
                spark = stack.enter_context(spark_session(log))
                files = self._files(spark)
                stopping = stack.enter_context(stop_signals())
                running = self._start(spark, files)
            totals, finished = self._watch(running, Path(files.path), stopping, console)
        seconds = time.monotonic() - begun
        pending = self._pending(totals)
        return Result(totals, seconds, running.restarted, finished, pending, self.output, self.checkpoint)

    def _files(self, spark: SparkSession) -> Files:
        """The files as they are, or the pieces of one that is too large for a batch."""
        files, size = self.memory.found.files, self.source.cut_to()
        return files if size is None else cut(spark, files, self.checkpoint.resolve() / _PIECES, size)

    def _start(self, spark: SparkSession, files: Files) -> Supervised:
        trigger: dict[str, Any] = {"availableNow": True}
        if self.every is not None:
            trigger = {"processingTime": f"{round(self.every * 1000)} milliseconds"}
        events = observed(stream_events(spark, files, **self.limits))
        output, checkpoint = self.output.resolve(), self.checkpoint.resolve()
        # First of all, so that a process that dies at any time leaves a checkpoint that can be gone on with.
        self.memory.save(checkpoint)
        try:
            return self.gnn.start(events, output, checkpoint=checkpoint, trigger=trigger)
        except BaseException:
            forget(checkpoint)
            raise

    def _watch(
        self, running: Supervised, folder: Path, stopping: Stopping, console: Console
    ) -> tuple[Totals, bool]:
        totals, asked_at, drained_at = Totals(), -1, -1
        title = f"{'following' if self.every is not None else 'reading'} {self.source.path}"
        display = Display(console, title, Backlog(folder, self.checkpoint))
        with display.shown():
            for new in Watch(running, f"{self.checkpoint.resolve()}/{STORE}").batches():
                for report in new:
                    totals.add(report)
                display.update(totals, new, self._doing(running, totals, stopping), running.restarted)
                if not stopping.asked:
                    asked_at = totals.batches
                elif totals.batches > asked_at or not running.query.status["isTriggerActive"]:
                    if not self._has_to_drain(totals):
                        running.stop()
                        return totals, False
                    if totals.batches > drained_at:
                        self.gnn.drain()
                        drained_at = totals.batches
        return totals, True

    def _pending(self, totals: Totals) -> int:
        """Vertices that wait in windows after the last batch; in the middle of one nobody can say."""
        return self.gnn.pending() if totals.last is None else totals.last.pending

    def _has_to_drain(self, totals: Totals) -> bool:
        """Whether something waits that nobody would send; a run that ends by itself sends all, later on."""
        return self.every is not None and self._pending(totals) > 0

    def _doing(self, running: Supervised, totals: Totals, stopping: Stopping) -> str:
        if stopping.asked and self._has_to_drain(totals):
            return "stopping when all that waits in windows is sent (Ctrl-C again: at once) ..."
        if stopping.asked:
            return "stopping after this batch (Ctrl-C again: at once) ..."
        if not totals.batches:
            return "first batch: workers start (10 s; minutes where they have to compile) ..."
        if self.every is not None and not running.query.status["isDataAvailable"]:
            return "waiting for new files (Ctrl-C ends it) ..."
        return f"batch {totals.last.number + 1 if totals.last else 0} ..."


def summary(result: Result, console: Console) -> None:
    """What was done, where it is, and what to do next."""
    totals = result.totals
    state = "[bold green]done" if result.finished else "[bold]stopped"
    console.print(
        f"{state}[/] after {span(result.seconds)}: {totals.events:,} events in {totals.batches:,} batches, "
        f"{totals.embeddings:,} rows written ({totals.tombstones:,} of them tombstones)",
        soft_wrap=True,
    )
    if not (totals.events or totals.embeddings):
        console.print("there was nothing new: a file is read once, so put new events into new files")
    if result.pending:
        console.print(f"{result.pending:,} changes wait in windows; the next run sends them")
    if totals.dead:
        console.print(f"{totals.dead.total():,} dead letters in {result.dead_letters}", soft_wrap=True)
        for reason, count in totals.dead.most_common():
            console.print(f"  {count:>9,}  {reason}", soft_wrap=True, markup=False)
    else:
        console.print("no dead letters")
    console.print(f"table: {result.output} (d3gnn.latest gives the newest row of each id)", soft_wrap=True)
    if not result.finished:
        console.print("the same command goes on from here")
    console.print(f"next: d3gnn verify --checkpoint {result.checkpoint}", soft_wrap=True, markup=False)
