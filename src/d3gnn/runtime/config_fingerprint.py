"""The settings that state depends on; a start with other ones rebuilds it from the log."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import NamedTuple

from d3gnn.kernel.mapped_state import peek_counters
from d3gnn.kernel.part_state import PartState

#: Its counters, in the state of Partition.
_NAME, _COUNT = "config_fingerprint", 2


class ConfigFingerprint(NamedTuple):
    """The version of the model, and a hash of the settings that decide when and whether something is sent."""

    model: int
    sending: int

    @staticmethod
    def of(model: int, sending: str) -> ConfigFingerprint:
        """From the version of the model and `OperatorConfig.sending`."""
        return ConfigFingerprint(model, zlib.crc32(sending.encode()))

    @staticmethod
    def read(part_state: PartState) -> ConfigFingerprint:
        """From the state of Partition."""
        return ConfigFingerprint(*part_state.counters(_NAME, _COUNT).tolist())

    @staticmethod
    def peek(folder: str | Path) -> ConfigFingerprint | None:
        """From the folder of Partition's state, without opening it; None if there is no state."""
        counters = peek_counters(folder, _NAME)
        return None if counters is None else ConfigFingerprint(*counters.tolist())

    def write(self, part_state: PartState) -> None:
        """Into the state of Partition."""
        part_state.counters(_NAME, _COUNT)[:] = self
