"""Kills the worker processes that load it, once for each (operator, batch) that the environment names.

`ASSASSIN=folder;moment`: the moment is `during` (arrays changed, version not stamped) or `after` (version
stamped, output not handed out). In the folder, a file `operator.batch` asks for a kill, which removes it.
"""

import os
import signal
from pathlib import Path

folder, _, moment = os.environ.get("ASSASSIN", "").partition(";")
if folder:
    from d3gnn.spark import runtime

    keep = runtime.Runtime.keep

    def strike(name: str, batch: int) -> None:
        try:
            (Path(folder) / f"{name}.{batch}").unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    def keep_or_die(self, name, part, space, stamp, parcels):  # type: ignore[no-untyped-def]
        if moment == "during":
            strike(name, stamp.batch)
        keep(self, name, part, space, stamp, parcels)
        if moment == "after":
            strike(name, stamp.batch)

    runtime.Runtime.keep = keep_or_die  # type: ignore[method-assign]
