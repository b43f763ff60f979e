"""Waiting for the first files of a folder."""

from __future__ import annotations

import time

from rich.console import Console

from d3gnn.cli.console import status
from d3gnn.cli.run.inputs import Inputs
from d3gnn.cli.stopping import stop_signals

_PAUSE = 0.5


def wait_for_files(inputs: Inputs, console: Console) -> bool:
    """Wait until every folder has a file, from which its columns are found; False if the user stops it."""
    empty = inputs.empty_folders()
    if not empty:
        return True
    names = ", ".join(map(str, empty))
    with stop_signals() as stopping, status(console, f"waiting for files in {names} (Ctrl-C to stop) ..."):
        while inputs.empty_folders():
            if stopping.asked:
                return False
            time.sleep(_PAUSE)
    return True
