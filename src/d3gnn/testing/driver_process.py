"""A driver on a cluster of `Machines`, for tests."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from d3gnn.testing.spark_cluster import SparkCluster

__all__ = ["DriverProcess"]

_DEADLINE = 400.0  # code may have to be compiled


class DriverProcess:
    """A Python program on the first machine of a cluster that answers calls.

    Its arguments are the master and the settings of a session, as JSON. Each line of its standard input is a
    call, and it appends an answer to the file that the environment names as ANSWERS, the first one when it is
    ready; all of them as JSON.
    """

    def __init__(self, cluster: SparkCluster, program: Path, name: str, **settings: str) -> None:
        folder = cluster.machines.folder
        self.log, self._answers = folder / f"{name}.log", folder / f"{name}.answers"
        self._answers.touch()
        self._read = 0
        self.process = cluster.start_driver(
            [str(program), cluster.master, json.dumps(cluster.settings(**settings))],
            self.log, {"ANSWERS": str(self._answers)}, stdin=subprocess.PIPE,
        )  # fmt: skip
        self.answer()

    def begin(self, call: str, **arguments: Any) -> None:
        """Send a call, without waiting for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([call, arguments]).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, timeout: float = _DEADLINE) -> Any:
        """The answer to the oldest call without one."""
        deadline = time.monotonic() + timeout
        while len(lines := self._complete()) <= self._read:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the driver has ended, or gives no answer: {self.tail()}")
            time.sleep(0.02)
        found = json.loads(lines[self._read])
        self._read += 1
        if "error" in found:
            raise RuntimeError(f"{found['error'][:3000]}\n{self.tail()}")
        return found.get("value")

    def _complete(self) -> list[str]:
        return self._answers.read_text().split("\n")[:-1]

    def call(self, call: str, **arguments: Any) -> Any:
        """Send a call; returns its answer."""
        self.begin(call, **arguments)
        return self.answer()

    def tail(self) -> str:
        """The end of what it has logged, without Java's stacks."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if not line.startswith("\tat "))[-6000:]

    def kill(self) -> None:
        """Kill it; its Java ends, too."""
        assert self.process.stdin is not None
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
