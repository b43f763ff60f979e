"""Spark's Python daemon, without the tracebacks of workers whose socket Spark has closed.

Spark closes the sockets of idle workers, and of all workers when it ends, a moment before it kills them. A
worker that notices in between reports the end of its input to the closed socket, and pyspark's daemon prints
the traceback of a BrokenPipeError for it.
"""

from __future__ import annotations

import sys
import traceback
from types import SimpleNamespace

from pyspark import daemon


def _print_exc() -> None:
    if not isinstance(sys.exc_info()[1], ConnectionError | EOFError):
        traceback.print_exc()


def main() -> None:
    """Run pyspark's daemon."""
    quiet = SimpleNamespace(print_exc=_print_exc, format_exc=traceback.format_exc)
    vars(daemon)["traceback"] = quiet
    daemon.manager()


if __name__ == "__main__":
    main()
