"""Which log the state of Partition was built from: the digest of the last entry that it contains.

The version alone does not tell: after a restore or a repair, another history may have as many batches.
"""

from __future__ import annotations

import numpy as np

from d3gnn.kernel.mapped_state import MappedPartState, StateLost
from d3gnn.kernel.part_state import PartState
from d3gnn.store.graph_log import GraphLog
from d3gnn.store.names import entry_path

#: Its counters, in the state of Partition.
_NAME, _COUNT = "log_position", 2


def write_position(state: PartState, digest: bytes) -> None:
    """Stamp the digest of the entry that is being applied."""
    state.counters(_NAME, _COUNT)[:] = np.frombuffer(digest, np.int64)


def is_of_log(state: PartState, log: GraphLog) -> bool:
    """Whether the batches that the state contains are those of the log. An empty state is of every log."""
    applied, stamp = state.version[1] - 1, state.counters(_NAME, _COUNT).tobytes()
    if applied < 0 or log.digest(applied) == stamp:
        return True
    log.look_again()  # another process may have written this entry anew
    return log.digest(applied) == stamp


def check_position(state: MappedPartState, log: GraphLog) -> None:
    """Raise `StateLost` if the state contains batches that the log does not have."""
    if not is_of_log(state, log):
        applied = state.version[1] - 1
        raise StateLost(
            f"the arrays in {state.folder} contain batch {applied}, but not as it is in the log: see "
            f"{entry_path(applied)} in {log.store.uri}. Either the log was restored or repaired since, or "
            "the entry was lost. The next batch of the pipeline rebuilds the arrays from the log."
        )
