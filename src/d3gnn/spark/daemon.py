"""Spark's Python daemon: workers end in order, and without tracebacks.

Spark closes the sockets of idle workers, and of all workers when it ends, a moment before it kills them. A
worker that notices in between reports the end of its input to the closed socket, and pyspark's daemon prints
the traceback of a BrokenPipeError for it.

A service manager sends SIGTERM to every process of a service, and a terminal SIGHUP. The program that started
Spark answers it, and stops its queries after their batch; until then the daemon and its workers must live.
They end when Java closes the daemon's input, which it does together with the SIGTERM that it sends itself.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from types import SimpleNamespace
from typing import Any

from pyspark import daemon


def _print_exc() -> None:
    if not isinstance(sys.exc_info()[1], ConnectionError | EOFError):
        traceback.print_exc()


def _unless_terminated(daemon_pid: int) -> Any:
    """Python's `signal.signal`, which ignores SIGTERM and SIGHUP instead of ending the daemon or a worker."""

    def handle(number: int, handler: Any) -> Any:
        ends_group = os.getpid() == daemon_pid and handler == signal.SIG_DFL  # the daemon, as its last act
        if number == signal.SIGHUP or (number == signal.SIGTERM and not ends_group):
            handler = signal.SIG_IGN
        return signal.signal(number, handler)

    return handle


def main() -> None:
    """Run pyspark's daemon."""
    quiet = SimpleNamespace(print_exc=_print_exc, format_exc=traceback.format_exc)
    handle = _unless_terminated(os.getpid())
    vars(daemon)["traceback"] = quiet
    vars(daemon)["signal"] = SimpleNamespace(**(vars(signal) | {"signal": handle}))
    daemon.manager()


if __name__ == "__main__":
    main()
