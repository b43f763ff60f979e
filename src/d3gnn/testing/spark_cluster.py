"""A standalone Spark cluster of the installed pyspark, on `Machines`; needs pyspark and Java."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import pyspark

from d3gnn.spark.java import java_home
from d3gnn.testing.machines import Machines

__all__ = ["SparkCluster"]

_DEADLINE = 60.0
_CLASS = "org.apache.spark.deploy."
_SPARK = Path(pyspark.__file__).parent
_WORKER, _EXECUTOR = "worker.Worker", "CoarseGrainedExecutorBackend"


class SparkCluster:
    """A master on the first machine, and a worker on each of the others. Drivers run on the first one, too.

    machines:
        Two or more.
    cores, memory:
        What each worker has for executors.
    port:
        Of the master: another one for a second cluster on the same machines.
    """

    def __init__(self, machines: Machines, cores: int = 2, memory: str = "1g", port: int = 7077) -> None:
        self.machines, self._cores, self._memory = machines, cores, memory
        self.head, *self.workers = machines.names
        self.master, self._port = f"spark://{self.head}:{port}", port
        self._stack = ExitStack()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._start(self.head, "master.Master", "--port", str(self._port))
        self._wait_for(self.head, "I have been elected leader")
        for name in self.workers:
            self.start_worker(name)
        for name in self.workers:
            self._wait_for(name, "Successfully registered with master")
        return self

    def __exit__(self, *_: object) -> None:
        for what in list(self._processes):
            self._end(what)
        self._stack.close()

    def settings(self, **more: str) -> dict[str, str]:
        """Settings of a session on this cluster, for a driver on the first machine."""
        return {
            "spark.driver.host": self.head,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        } | more

    def start_worker(self, name: str) -> None:
        """Start the worker of a machine; after a crash of it, boot it first."""
        work = self.machines.folder / "work" / name
        self._start(
            name, "worker.Worker", "--cores", str(self._cores), "--memory", self._memory,
            "--work-dir", str(work), self.master,
        )  # fmt: skip

    def stop_worker(self, name: str) -> None:
        """Kill the worker of a machine and its executors; its memory stays."""
        for pid, line in self.machines.processes(name).items():
            if _WORKER in line or _EXECUTOR in line:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def wait_for_executors(self) -> None:
        """Wait until every worker has started an executor for the application that runs."""
        deadline = time.monotonic() + _DEADLINE
        while not all(map(self.executors, self.workers)):
            if time.monotonic() > deadline:
                raise RuntimeError("not every worker has started an executor")
            time.sleep(0.1)
        time.sleep(5)  # until it has registered

    def submit(self, script: Path, log: Path) -> subprocess.Popen[bytes]:
        """Start a script by `spark-submit` on the first machine."""
        settings = [f"--conf={name}={value}" for name, value in self.settings().items()]
        command = [str(_SPARK / "bin" / "spark-submit"), "--master", self.master, *settings, str(script)]
        environment = {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(java_home())}
        with log.open("ab") as output:
            return self.machines.start(self.head, command, environment=environment, output=output)

    def start_driver(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        """Start a Python program on the first machine."""
        more = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"} | dict(environment or {})
        with log.open("ab") as output:
            return self.machines.start(
                self.head, [sys.executable, *command], environment=more, output=output, stdin=stdin
            )

    def executors(self, name: str) -> list[int]:
        """The process ids of the executors on a machine."""
        return [pid for pid, line in self.machines.processes(name).items() if _EXECUTOR in line]

    def python_workers(self, name: str) -> list[int]:
        """The process ids of Spark's Python workers on a machine, without the daemon above them."""
        found = self.machines.processes(name)
        python = {pid for pid, line in found.items() if "pyspark.daemon" in line}
        return [pid for pid in python if _parent(pid) in python]

    def _start(self, name: str, what: str, *arguments: str) -> None:
        environment = {
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(_SPARK),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_LOCAL_DIRS": "/tmp",
            "SPARK_NO_DAEMONIZE": "1",
        }
        log = self._stack.enter_context(self._log(name, what).open("ab"))
        command = [str(_SPARK / "bin" / "spark-class"), _CLASS + what, "--host", name]
        self._end(f"{name} {what}")
        self._processes[f"{name} {what}"] = self.machines.start(
            name, [*command, "--webui-port", "0", *arguments], environment=environment, output=log
        )

    def _log(self, name: str, what: str) -> Path:
        return self.machines.folder / f"{name}-{what}-{self._port}.log"

    def _end(self, what: str) -> None:
        if (process := self._processes.pop(what, None)) is not None:
            process.kill()
            process.wait()

    def _wait_for(self, name: str, line: str) -> None:
        what = "master.Master" if name == self.head else "worker.Worker"
        log, deadline = self._log(name, what), time.monotonic() + _DEADLINE
        while line not in log.read_text(errors="replace"):
            ended = self._processes[f"{name} {what}"].poll() is not None
            if ended or time.monotonic() > deadline:
                raise RuntimeError(
                    f"Spark did not start on {name}: {log.read_text(errors='replace')[-2000:]}"
                )
            time.sleep(0.1)


def _parent(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(status.rpartition(")")[2].split()[1])
