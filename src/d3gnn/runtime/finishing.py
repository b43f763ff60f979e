"""Signals in the middle of a batch: they end the process only when the batch is finished.

A worker that dies between the first change of its arrays and the stamp of their version leaves state that
must be rebuilt from the graph log.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_DEADLY = (signal.SIG_DFL, signal.default_int_handler)


@contextmanager
def finishing() -> Iterator[None]:
    """Let a signal that would end this process do so at the end of the block; others have their effect."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)

    before = {each: handler for each in _SIGNALS if (handler := signal.getsignal(each)) in _DEADLY}
    for each in before:
        signal.signal(each, note)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        for number in received[:1]:
            os.kill(os.getpid(), number)
