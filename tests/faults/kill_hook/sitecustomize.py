"""Kills the worker processes that load it, once for each (operator, batch) that the environment names.

`KILL_HOOK=folder;moment`: the moment is `during` (arrays changed, version not stamped) or `after` (version
stamped, output not handed out). In the folder, a file `operator.batch` asks for a kill, which removes it.
"""

import os
import signal
import sys
from pathlib import Path

folder, _, when = os.environ.get("KILL_HOOK", "").partition(";")
# Spark starts other Python processes, too, which need not load all this.
if folder and sys.orig_argv[-1] == "pyspark.worker":
    from d3gnn.runtime import chain, chain_worker, worker

    send, step, chain_send = worker.Worker.send, chain.Lane.step, chain_worker.ChainWorker.send
    batch = 0  # of the chain in this process

    def strike(name: str, batch: int) -> None:
        try:
            (Path(folder) / f"{name}.{batch}").unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    def send_or_die(self, name, part, part_state, version, blocks):  # type: ignore[no-untyped-def]
        if when == "during":
            strike(name, version.batch)
        sent = send(self, name, part, part_state, version, blocks)
        if when == "after":
            strike(name, version.batch)
        return sent

    def chain_send_or_die(self, name, part, part_state, version, blocks):  # type: ignore[no-untyped-def]
        global batch
        batch = version.batch
        if when == "during":
            strike(name, version.batch)
        sent = chain_send(self, name, part, part_state, version, blocks)
        if when == "after":  # one version for the whole chain
            strike(name, version.batch)
        return sent

    def step_or_die(self, i, topology, blocks, context):  # type: ignore[no-untyped-def]
        sent = step(self, i, topology, blocks, context)
        if when == "during":
            strike(str(self.operators[i].id), batch)
        return sent

    worker.Worker.send = send_or_die  # type: ignore[method-assign]
    chain_worker.ChainWorker.send = chain_send_or_die  # type: ignore[method-assign]
    chain.Lane.step = step_or_die  # type: ignore[method-assign]
