"""Ctrl-C, and a kind kill, end a long job after what it is doing now."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """Whether the user wants an end."""

    asked = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """The second time there is no waiting."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def stop_signals() -> Iterator[Stopping]:
    """Note the signals instead of dying of them, as long as the block runs."""
    stopping = Stopping()
    if threading.current_thread() is not threading.main_thread():
        yield stopping  # signals come to the main thread alone
        return
    before = {number: signal.signal(number, stopping.ask) for number in _SIGNALS}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
