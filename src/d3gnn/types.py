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

# Columns are made in Python and filled by compiled functions, which take arrays in half the time that they
# need to make and return them; and numpy takes a dtype in half the time of a type.
INT32, INT64, UINT64 = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.uint64)
FLOAT32 = np.dtype(np.float32)
