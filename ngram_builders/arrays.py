"""The arrays that pass between files, by what they hold. Shapes stand beside the code that makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]  # tokens, as decoding computes with them
Ints = npt.NDArray[np.integer[Any]]  # tokens or counts, however many bits they have
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
