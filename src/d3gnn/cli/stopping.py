"""Ctrl-C, SIGTERM and SIGHUP stop a long job at the next safe point."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopping:
    """Whether the user asked to stop."""

    #: The number of the first signal; 0 before.
    number = 0

    @property
    def asked(self) -> bool:
        """Whether there was a signal."""
        return self.number != 0

    @property
    def exit_code(self) -> int:
        """The exit code of a command that was stopped by this signal, as in shells."""
        return 128 + (self.number or signal.SIGINT)

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal. A second Ctrl-C stops at once; other signals may be sent to a process twice, by
        its id and with its group.
        """
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = self.number or number


@contextmanager
def stop_signals() -> Iterator[Stopping]:
    """Record the signals instead of ending the process, while the block runs."""
    stopping = Stopping()
    if threading.current_thread() is not threading.main_thread():
        yield stopping  # only the main thread receives signals
        return
    # nohup has SIGHUP ignored.
    wanted = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stopping.ask) for number in wanted}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
