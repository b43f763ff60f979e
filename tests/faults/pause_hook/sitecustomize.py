"""Pauses the worker processes that load it in the middle of a batch.

`PAUSE_HOOK=folder`: a file with the number of a batch there asks for a pause in it. The worker renames the
file to `paused`, and goes on when that is removed.
"""

import os
import sys
import time
from pathlib import Path

folder = os.environ.get("PAUSE_HOOK", "")
# Spark starts other Python processes, too, which need not load all this.
if folder and sys.orig_argv[-1] == "pyspark.worker":
    from d3gnn.runtime import transport

    send = transport.OutboxTransport.send

    def send_after_pause(self, sender, part, version, blocks):  # type: ignore[no-untyped-def]
        paused = Path(folder) / "paused"
        try:
            (Path(folder) / str(version.batch)).rename(paused)
        except FileNotFoundError:
            pass
        else:
            while paused.exists():
                time.sleep(0.02)
        return send(self, sender, part, version, blocks)

    transport.OutboxTransport.send = send_after_pause  # type: ignore[method-assign]
