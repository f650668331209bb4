"""The compiled model_kernel.c, and the same product in NumPy, number for number.

A plain C library (ngram_builders/table/shared_library.py), so it fits every Python. SPD_LSP_KERNEL=0 turns it off.

Legend: M rows, I inputs, O outputs.
"""

from __future__ import annotations

import ctypes
import logging
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from ngram_builders.arrays import F32, I8, Floats
from ngram_builders.table import shared_library
from ngram_builders.table.shared_library import LIBRARY_SUFFIX, Signature, load_library

log = logging.getLogger(__name__)

_FOLDER = Path(__file__).parent
LIBRARY = _FOLDER / f"libmodel{LIBRARY_SUFFIX}"
_SOURCES = tuple(_FOLDER / name for name in ("model_kernel.c", "int8_product.h"))  # in a source tree only
_POINTER, _INTEGER = ctypes.c_void_p, ctypes.c_int64
_SIGNATURES: dict[str, Signature] = {
    "instruction_set": (_INTEGER, ()),
    "multiply": (None, (_INTEGER, _POINTER, _POINTER, _INTEGER, _POINTER, _POINTER)),
    "split_rows": (None, (_POINTER, _INTEGER, _INTEGER, _POINTER, _POINTER)),
}
INSTRUCTION_SETS = ("none", "AVX2", "AVX-512 VNNI", "NEON dot products")  # as model_kernel.c numbers them
SCRATCH = 8  # bytes of each row that the kernel needs beside the quantized row
FEWEST_OUTPUTS = 4  # that the kernel computes
_LARGEST = np.float32(127)


class _Weights(ctypes.Structure):
    """Weights as model_kernel.c declares them."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("values", "scales", "bias")),
        *((name, ctypes.c_int64) for name in ("inputs", "outputs")),
    )


@dataclass(frozen=True, slots=True)
class ModelKernel:
    """The compiled library, and the instruction set by which it computes here."""

    library: ctypes.CDLL
    instruction_set: int


def load_kernel() -> ModelKernel | None:
    """The compiled library; None where there is none, and on processors for which it has no instructions."""
    return None if shared_library.is_disabled() else _load_checked()[0]


def reason_without() -> str:
    """Why models run without the library, slower; an empty string if they do not."""
    return f"{shared_library.KERNEL_VARIABLE}=0 is set" if shared_library.is_disabled() else _load_checked()[1]


@cache
def _load_checked() -> tuple[ModelKernel | None, str]:
    """Load and try the library once: it, or why it is not used. A broken one is logged."""
    if not LIBRARY.exists():
        return None, "it was not compiled when the package was installed"
    try:
        kernel = open_kernel(LIBRARY)
    except ValueError as error:
        log.warning("models run without the compiled kernel, slower: %s", error)
        return None, str(error)
    return (kernel, "") if kernel.instruction_set else (None, "it has no instructions for this processor")


def open_kernel(path: Path) -> ModelKernel:
    """Open a library; ValueError if it gives other numbers than NumPy."""
    library = load_library(path, _SOURCES, _SIGNATURES)
    kernel = ModelKernel(library, library.instruction_set())
    if kernel.instruction_set:
        _check(kernel)
    return kernel


def weights_structure(values: I8, scales: F32, bias: F32 | None) -> ctypes.Structure:
    """What the kernel reads of weights [O, I], which have to stay where they are."""
    outputs, inputs = values.shape
    addresses = (values.ctypes.data, scales.ctypes.data, None if bias is None else bias.ctypes.data)
    return _Weights(*addresses, inputs, outputs)


def _check(kernel: ModelKernel) -> None:
    """Raise ValueError if a small product differs from NumPy's."""
    x = np.sin(np.arange(7 * 200, dtype=np.float32)).reshape(7, 200)
    values, scales = quantize_rows(np.cos(np.arange(6 * 200, dtype=np.float32)).reshape(6, 200))
    bias, y, scratch = np.arange(6, dtype=np.float32), np.empty((7, 6), np.float32), np.empty(7 * 208, np.uint8)
    weights = weights_structure(values, scales, bias)
    arrays = (array.ctypes.data for array in (x, y, scratch))
    kernel.library.multiply(kernel.instruction_set, ctypes.addressof(weights), next(arrays), 7, *arrays)
    if not np.array_equal(y, multiply_in_numpy(x, values, scales, bias)):
        raise ValueError("the library gives wrong results; install the package again")


def quantize_rows(x: Floats) -> tuple[I8, F32]:
    """Each row in 8 bits, and its scale: the largest of a row becomes 127 or -127. [M, I] -> [M, I], [M]."""
    largest = np.abs(x).max(axis=1, initial=0)
    inverse = np.divide(_LARGEST, largest, out=np.zeros_like(largest), where=largest != 0)
    return np.rint(x * inverse[:, None]).astype(np.int8), largest / _LARGEST


def split_in_numpy(x: Floats) -> F32:
    """Rows and, after them, what quantization leaves of each. [M, I] -> [2 M, I]."""
    values, scales = quantize_rows(x)
    return np.concatenate([x, x - values * scales[:, None]])


def multiply_in_numpy(x: F32, values: I8, scales: F32, bias: F32 | None) -> F32:
    """x W + b, slowly: sums of integers are exact in 64 bits. [M, I] -> [M, O]."""
    rows, row_scales = quantize_rows(x)
    sums = rows.astype(np.float64) @ values.T.astype(np.float64)
    y: F32 = sums.astype(np.float32) * (row_scales[:, None] * scales)
    return y if bias is None else y + bias
