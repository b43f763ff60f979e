"""A Spark session with the settings that make streams of small batches fast, and advice for others."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from d3gnn.places import own_places
from d3gnn.spark.java import use_java
from d3gnn.spark.launcher import launcher

__all__ = ["advice", "advise", "session"]

log = logging.getLogger("d3gnn")

_SOCKETS = "spark.python.unix.domain.socket.enabled"
_SOCKET_FOLDER = "spark.python.unix.domain.socket.dir"
_REUSE = "spark.python.worker.reuse"
_ADAPTIVE = "spark.sql.adaptive.enabled"
_SHUFFLE = "spark.sql.shuffle.partitions"
_COMPRESS = "spark.shuffle.compress"
_CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
_LOCAL_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
#: On few cores the collector that stops the world is through with it sooner: a fifth more edges/s. And Arrow
#: would look at the bounds of its buffers, and at who holds them, for every single number that Spark reads.
_JAVA = "-XX:+UseParallelGC -Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
#: The path of a socket has 107 bytes at most, and Spark's name for it takes up to 43 of them.
_LONGEST_FOLDER = 60
#: What Spark says before it reads `spark.log.level` is of no use to anybody who runs it on one machine.
_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


def session(master: str = "local[*]", app_name: str = "d3gnn", **config: Any) -> SparkSession:
    """A Spark session with the right settings; if there is one already, that one, as it is.

    master:
        As Spark has it: `local[*]` for all cores of this machine, or the address of a cluster.
    config:
        Further settings, which go before the ones made here: `session(**{"spark.driver.memory": "8g"})`.
    """
    settings: dict[str, Any] = {}
    mine = SparkSession.getActiveSession() is None
    if mine:
        use_java()
        _use_this_python(master)
        settings = _settings(master)
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in (settings | config).items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else str(value))
    spark = builder.getOrCreate()
    if mine and _is_local(master):
        _write_no_checksums(spark)
    return spark


def _write_no_checksums(spark: SparkSession) -> None:
    """Hadoop puts a file with checksums beside every local file, and runs `chmod` for each of the two.

    For the three small files of every batch's checkpoint that is half of the time that they take.
    """
    jvm, context = spark._jvm, spark.sparkContext
    if jvm is None:
        return
    root = jvm.java.net.URI.create("file:///")
    files = jvm.org.apache.hadoop.fs.FileSystem.get(root, context._jsc.hadoopConfiguration())
    files.setWriteChecksum(False)


def _settings(master: str) -> dict[str, str]:
    settings = {
        _SOCKETS: "true",
        _REUSE: "true",
        _ADAPTIVE: "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Small enough that Python reads one piece while Java writes the next.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2 * 2**20),
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if not _is_local(master):
        return settings
    folder = _short_folder()
    quiet = folder / "log4j2.properties"
    quiet.write_text(_LOG4J)
    # The machine's own name need not lead to it.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return settings | {
        _SOCKET_FOLDER: str(folder),
        _CHECKPOINTS: _LOCAL_CHECKPOINTS,
        _SHUFFLE: str(_cores(master)),
        # Nearly all that is exchanged is floating-point numbers, which do not compress.
        _COMPRESS: "false",
        "spark.driver.memory": f"{_driver_megabytes()}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{_JAVA} -Dlog4j2.configurationFile={quiet.as_uri()}",
    }


def _use_this_python(master: str) -> None:
    """Python workers run this interpreter; on a cluster, unless the user names another for it."""
    if _is_local(master):
        os.environ["PYSPARK_PYTHON"] = launcher([*own_places(Path(__file__).parent), _short_folder()])
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _is_local(master: str | None) -> bool:
    return master is not None and master.startswith("local") and not master.startswith("local-cluster")


def _short_folder() -> Path:
    """A folder of this user alone, with a path that is short enough for sockets."""
    name = f"d3gnn-{os.getuid()}"
    folder = Path(tempfile.gettempdir()) / name
    if len(os.fsencode(folder)) > _LONGEST_FOLDER:
        folder = Path("/tmp") / name
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        folder = Path(tempfile.mkdtemp(prefix="d3gnn-", dir="/tmp"))
    return folder


def _cores(master: str) -> int:
    named = master.partition("[")[2].rstrip("]").split(",")[0]
    if named == "*":
        return os.cpu_count() or 1
    return int(named) if named.isdecimal() else 1


def _driver_megabytes() -> int:
    """A quarter of the memory, from 1 to 8 GB: Python workers, arrays and the page cache need the rest."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return max(1024, min(8192, total // 4))


@contextmanager
def planned_once(spark: SparkSession) -> Iterator[None]:
    """Queries that start in here run each batch as one job, not one for every exchange: 15 ms less for each.

    Adaptive execution is for sinks that may ask for nothing: with it every operator has run before they are
    asked. A table asks for everything.
    """
    before = spark.conf.get(_ADAPTIVE, "true")
    spark.conf.set(_ADAPTIVE, "false")
    try:
        yield
    finally:
        spark.conf.set(_ADAPTIVE, str(before))


def require_adaptive(spark: SparkSession) -> None:
    """Refuse a session in which a batch could be committed that no operator saw."""
    if spark.conf.get(_ADAPTIVE, "true") != "true":
        raise ValueError(
            f"{_ADAPTIVE} is off in this session: without it, a foreachBatch callback that runs no action "
            f"would lose its batch. Set it, spark.conf.set({_ADAPTIVE!r}, True), before the query starts; or "
            "let start() write the output to a table, which asks for everything."
        )


# ------------------------------------------------------------------ advice


class _Advice(NamedTuple):
    setting: str
    value: str
    can_be_set_now: bool
    why: str

    def __str__(self) -> str:
        when = "can be set now" if self.can_be_set_now else "before the session starts"
        return f"{self.setting}={self.value} ({when}): {self.why}"


def advice(spark: SparkSession) -> list[str]:
    """What would make this session faster: for each setting its value, when to set it, and why.

    There is nothing to say of a session that `session()` made.
    """
    return [str(found) for found in _advice(spark)]


def advise(spark: SparkSession) -> None:
    """Log the advice for this session, once."""
    if is_remote():  # the settings are the server's
        return
    application = spark.sparkContext.applicationId
    if application in _advised:
        return
    _advised.add(application)
    if lines := advice(spark):
        said = "\n  ".join(lines)
        log.warning("d3gnn would be faster with these settings, which d3gnn.session() makes:\n  %s", said)


_advised: set[str] = set()


def _advice(spark: SparkSession) -> Iterator[_Advice]:
    context = spark.sparkContext
    at_start = context.getConf()
    if at_start.get(_SOCKETS, "false") != "true":
        why = "over TCP every Python stage stalls for about 40 ms in every batch"
        yield _Advice(_SOCKETS, "true", False, why)
    else:
        folder = at_start.get(_SOCKET_FOLDER, None) or tempfile.gettempdir()
        if len(os.fsencode(folder)) > _LONGEST_FOLDER:
            why = f"{folder} is too long for the path of a socket: Python workers may not start"
            yield _Advice(_SOCKET_FOLDER, str(_short_folder()), False, why)
    if at_start.get(_REUSE, "true") != "true":
        why = "without it every task starts a Python process, seconds with torch and numba"
        yield _Advice(_REUSE, "true", False, why)
    if spark.conf.get(_ADAPTIVE, "true") != "true":
        why = "without it a foreachBatch callback with no action commits batches that no operator saw"
        yield _Advice(_ADAPTIVE, "true", True, why)
    if not _is_local(context.master):
        return
    if spark.conf.get(_CHECKPOINTS, "") != _LOCAL_CHECKPOINTS:
        why = "30 ms instead of 100 to commit a batch to a checkpoint on a local disk; not for object stores"
        yield _Advice(_CHECKPOINTS, _LOCAL_CHECKPOINTS, True, why)
    tasks, cores = int(spark.conf.get(_SHUFFLE, "200") or 200), context.defaultParallelism
    if tasks > 4 * cores:
        why = f"{tasks} tasks on {cores} cores take longer than the work of a small batch"
        yield _Advice(_SHUFFLE, str(cores), True, why)
