"""Names for the array types that the signatures use."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]
Small = NDArray[np.int8]
Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]
Hashes = NDArray[np.uint64]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
