"""Kills the worker processes that load it, once for each (operator, batch) that the environment names.

`ASSASSIN=folder;moment`: the moment is `during` (arrays changed, version not stamped) or `after` (version
stamped, output not handed out). In the folder, a file `operator.batch` asks for a kill, which removes it.
"""

import os
import signal
import sys
from pathlib import Path

folder, _, moment = os.environ.get("ASSASSIN", "").partition(";")
# Spark starts other Python processes, too, which need not load all this.
if folder and sys.orig_argv[-1] == "pyspark.worker":
    from d3gnn.spark import runtime

    send = runtime.Runtime.send

    def strike(name: str, batch: int) -> None:
        try:
            (Path(folder) / f"{name}.{batch}").unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    def send_or_die(self, name, part, space, stamp, blocks):  # type: ignore[no-untyped-def]
        if moment == "during":
            strike(name, stamp.batch)
        sent = send(self, name, part, space, stamp, blocks)
        if moment == "after":
            strike(name, stamp.batch)
        return sent

    runtime.Runtime.send = send_or_die  # type: ignore[method-assign]
