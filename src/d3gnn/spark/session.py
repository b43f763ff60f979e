"""A Spark session with settings that make small batches fast, and advice for other sessions."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from d3gnn.cache_dirs import own_cache_dirs, temporary_folder
from d3gnn.private import NotPrivate
from d3gnn.spark.cluster_settings import CLUSTER_SETTINGS
from d3gnn.spark.java import use_java
from d3gnn.spark.launcher import launcher

__all__ = ["advice", "advise", "session"]

log = logging.getLogger("d3gnn")

_SOCKETS = "spark.python.unix.domain.socket.enabled"
_SOCKET_FOLDER = "spark.python.unix.domain.socket.dir"
_REUSE = "spark.python.worker.reuse"
_KILL_TIMEOUT = "spark.python.task.killTimeout"
_ADAPTIVE = "spark.sql.adaptive.enabled"
_SHUFFLE = "spark.sql.shuffle.partitions"
_COMPRESS = "spark.shuffle.compress"
_CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
_LOCAL_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
#: The parallel collector is faster on few cores: a fifth more edges/s. The other two options switch off
#: Arrow's checks of bounds and reference counts, which it makes for every number that Spark reads.
_JAVA = "-XX:+UseParallelGC -Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
#: Longer than any batch: a worker that is killed in a batch leaves state that must be rebuilt.
_LONGEST_BATCH = "600s"
#: The path of a socket has at most 107 bytes, of which Spark's file name takes up to 43.
_LONGEST_FOLDER = 60
#: Errors only, from the start: Spark reads `spark.log.level` after it has logged its first lines.
_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


def session(master: str | None = None, app_name: str = "d3gnn", **config: Any) -> SparkSession:
    """A Spark session with settings for streams of small batches; the active session, if there is one.

    Needs Java 17 or newer, which it looks for in JAVA_HOME, on the PATH and in the usual places. When Python
    ends, it stops its queries and itself. See docs/spark.md for the settings.

        spark = d3gnn.session("local[4]", **{"spark.driver.memory": "8g"})

    master:
        `local[*]` for all cores of this machine, `local[4]` for four, or the address of a cluster, such as
        `spark://host:7077`. By default that of `spark-submit`, whose settings count as well; else `local[*]`.
    config:
        Further Spark settings; they override those of this function.
    """
    submitted = _submitted()
    master = master or submitted.get("spark.master", "local[*]")
    settings: dict[str, Any] = {}
    is_new = SparkSession.getActiveSession() is None
    if is_new:
        use_java()
        _use_this_python(master)
        settings = {name: value for name, value in _settings(master).items() if name not in submitted}
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in (settings | config).items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else str(value))
    spark = builder.getOrCreate()
    if is_new:
        atexit.register(_stop_quietly, spark, os.getpid())
        _leave_signals_to_python(spark)
        if _is_local(master):
            _write_no_checksums(spark)
    return spark


def _submitted() -> dict[str, str]:
    """The settings with which `spark-submit` has started this program; none if it has not."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _stop_quietly(spark: SparkSession, process: int) -> None:
    """Stop the session's queries and the session, unless it is stopped already.

    Otherwise Java ends while Python workers still run, and both print stack traces.
    """
    if os.getpid() != process or spark.sparkContext._jsc is None:
        return
    with suppress(Exception):  # Java has ended, say
        spark.sparkContext.setLogLevel("OFF")  # a query that is stopped in a batch logs errors
        for query in spark.streams.active:
            query.stop()
        spark.stop()


def _leave_signals_to_python(spark: SparkSession) -> None:
    """Let Java ignore SIGTERM and SIGHUP, as it does SIGINT, and so the processes that it starts.

    They are sent to all processes of a group or service at once. Python decides what happens; Java ends when
    Python does.
    """
    if (jvm := spark._jvm) is not None:
        for name in ("TERM", "HUP"):
            jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal(name), jvm.sun.misc.SignalHandler.SIG_IGN)


def _write_no_checksums(spark: SparkSession) -> None:
    """Write no checksum files beside local files.

    Hadoop runs `chmod` for each file and for each checksum file. Without them, the three small files of a
    batch's checkpoint take half the time.
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
        _KILL_TIMEOUT: _LONGEST_BATCH,
        _ADAPTIVE: "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Small pieces, so that Python reads one while Java writes the next.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2 * 2**20),
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if not _is_local(master):
        return settings | CLUSTER_SETTINGS
    folder = _short_folder()
    quiet = folder / "log4j2.properties"
    quiet.write_text(_LOG4J)
    # The machine's host name may not resolve to it.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return settings | {
        _SOCKET_FOLDER: str(folder),
        _CHECKPOINTS: _LOCAL_CHECKPOINTS,
        _SHUFFLE: str(_cores(master)),
        # Operators exchange floating-point numbers, mostly, which do not compress.
        _COMPRESS: "false",
        "spark.driver.memory": f"{_driver_megabytes()}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{_JAVA} -Dlog4j2.configurationFile={quiet.as_uri()}",
    }


def _use_this_python(master: str) -> None:
    """Python workers run this interpreter; on a cluster, unless PYSPARK_PYTHON names another."""
    if _is_local(master):
        os.environ["PYSPARK_PYTHON"] = launcher([*own_cache_dirs(Path(__file__).parent), _short_folder()])
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _is_local(master: str | None) -> bool:
    return master is not None and master.startswith("local") and not master.startswith("local-cluster")


def _short_folder() -> Path:
    """A private folder of this user with a path that is short enough for sockets."""
    try:
        folder = temporary_folder()
        return folder if len(os.fsencode(folder)) <= _LONGEST_FOLDER else temporary_folder("/tmp")
    except NotPrivate:  # another user has taken the name
        return Path(tempfile.mkdtemp(prefix="d3gnn-", dir="/tmp"))


def _cores(master: str) -> int:
    named = master.partition("[")[2].rstrip("]").split(",")[0]
    if named == "*":
        return os.cpu_count() or 1
    return int(named) if named.isdecimal() else 1


def _driver_megabytes() -> int:
    """A quarter of the memory, from 1 to 8 GB. Python workers, arrays and the page cache need the rest."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return max(1024, min(8192, total // 4))


@contextmanager
def planned_once(spark: SparkSession) -> Iterator[None]:
    """Queries that start in this context run each batch as one job, not as one per exchange.

    That saves 15 ms an exchange. It switches adaptive execution off, which is needed for sinks that may not
    read all rows: it runs every operator before the sink. A table reads all rows.
    """
    before = spark.conf.get(_ADAPTIVE, "true")
    spark.conf.set(_ADAPTIVE, "false")
    try:
        yield
    finally:
        spark.conf.set(_ADAPTIVE, str(before))


def require_adaptive(spark: SparkSession) -> None:
    """Refuse a session in which Spark could commit a batch that no operator has processed."""
    if spark.conf.get(_ADAPTIVE, "true") != "true":
        raise ValueError(
            f"{_ADAPTIVE} is off in this session. Without it, a foreachBatch callback that runs no action "
            f"loses its batch. Set it before the query starts, spark.conf.set({_ADAPTIVE!r}, True), or write "
            "the output to a table with start()."
        )


# ------------------------------------------------------------------ advice


class _Advice(NamedTuple):
    setting: str
    value: str
    can_be_set_now: bool
    why: str

    def __str__(self) -> str:
        when = "can be set now" if self.can_be_set_now else "only before the session starts"
        return f"{self.setting}={self.value} ({when}): {self.why}"


def advice(spark: SparkSession) -> list[str]:
    """Settings that would make a session of your own faster: each with its value, when to set it, and why.

    Empty for a session that `session()` made.
    """
    return [str(found) for found in _advice(spark)]


def advise(spark: SparkSession) -> None:
    """Log the advice for this session, once per application."""
    if is_remote():  # the server has the settings
        return
    application = spark.sparkContext.applicationId
    if application in _advised:
        return
    _advised.add(application)
    if lines := advice(spark):
        log.warning(
            "these Spark settings make d3gnn faster (d3gnn.session() sets them):\n  %s", "\n  ".join(lines)
        )


_advised: set[str] = set()


def _advice(spark: SparkSession) -> Iterator[_Advice]:
    context = spark.sparkContext
    at_start = context.getConf()
    if at_start.get(_SOCKETS, "false") != "true":
        why = "over TCP, every Python stage waits about 40 ms in every batch"
        yield _Advice(_SOCKETS, "true", False, why)
    else:
        folder = at_start.get(_SOCKET_FOLDER, None) or tempfile.gettempdir()
        if len(os.fsencode(folder)) > _LONGEST_FOLDER:
            why = f"the path of {folder} is too long for a socket: Python workers may not start"
            yield _Advice(_SOCKET_FOLDER, str(_short_folder()), False, why)
    if at_start.get(_REUSE, "true") != "true":
        why = (
            "without it, every task starts a Python process and imports torch and numba, which takes seconds"
        )
        yield _Advice(_REUSE, "true", False, why)
    if at_start.get(_KILL_TIMEOUT, "2s") == "2s":
        why = "else stop() kills a worker that is in a batch 2 s later, and the next start rebuilds all state"
        yield _Advice(_KILL_TIMEOUT, _LONGEST_BATCH, False, why)
    if spark.conf.get(_ADAPTIVE, "true") != "true":
        why = "without it, a foreachBatch callback with no action commits batches that no operator processed"
        yield _Advice(_ADAPTIVE, "true", True, why)
    if not _is_local(context.master):
        return
    if spark.conf.get(_CHECKPOINTS, "") != _LOCAL_CHECKPOINTS:
        why = "committing a batch to a local disk takes 30 ms instead of 100; do not set it for object stores"
        yield _Advice(_CHECKPOINTS, _LOCAL_CHECKPOINTS, True, why)
    tasks, cores = int(spark.conf.get(_SHUFFLE, "200") or 200), context.defaultParallelism
    if tasks > 4 * cores:
        why = f"starting {tasks} tasks on {cores} cores takes longer than a small batch itself"
        yield _Advice(_SHUFFLE, str(cores), True, why)
