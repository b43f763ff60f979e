"""Ctrl-C and SIGTERM stop a long job at the next safe point."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """Whether the user asked to stop."""

    asked = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal; the second one stops at once."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def stop_signals() -> Iterator[Stopping]:
    """Record the signals instead of ending the process, while the block runs."""
    stopping = Stopping()
    if threading.current_thread() is not threading.main_thread():
        yield stopping  # only the main thread receives signals
        return
    before = {number: signal.signal(number, stopping.ask) for number in _SIGNALS}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
