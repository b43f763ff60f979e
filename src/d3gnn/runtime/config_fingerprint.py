"""The settings that state depends on; state with other ones is rebuilt from the log."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import NamedTuple

from d3gnn.kernel.mapped_state import peek_counters
from d3gnn.kernel.part_state import PartState

#: Its counters, in the state of Partition.
_NAME, _COUNT = "built_with", 3
#: A hash that no settings have.
_UNSETTLED = -1


class ConfigFingerprint(NamedTuple):
    """The version of the model, and a hash of the settings that decide when and whether something is sent."""

    model: int
    sending: int
    #: The deployment that chose the model: which of two fingerprints is newer.
    deployment: int = 0

    @staticmethod
    def of(model: int, sending: str, deployment: int = 0) -> ConfigFingerprint:
        """From the version of the model and `OperatorConfig.sending`."""
        return ConfigFingerprint(model, zlib.crc32(sending.encode()), deployment)

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

    def unsettled(self) -> ConfigFingerprint:
        """The same model, with settings that never match: the next batch rebuilds the state once more."""
        return self._replace(sending=_UNSETTLED)

    def covers(self, wanted: ConfigFingerprint) -> bool:
        """Whether state with this fingerprint serves what is wanted, or a deployment after that.

        >>> old, new = ConfigFingerprint(1, 7, deployment=1), ConfigFingerprint(2, 7, deployment=2)
        >>> old.covers(new), new.covers(old), old.covers(old)
        (False, True, True)
        """
        newer = self.deployment > wanted.deployment or self.model == wanted.model
        return newer and self.sending == wanted.sending
