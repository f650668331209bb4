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
    "multiply": (None, (_INTEGER, _POINTER, _POINTER, _INTEGER, _INTEGER, _POINTER, _POINTER)),
}
INSTRUCTION_SETS = ("none", "AVX2", "AVX-512 VNNI", "NEON dot products")  # as model_kernel.c numbers them
SCRATCH = 12  # bytes of each row that the kernel needs beside two for each value
FEWEST_OUTPUTS = 4  # that the kernel computes
COARSE = 127  # the largest value of a row that is quantized to 8 bits


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
    """Raise ValueError if small products differ from NumPy's."""
    x = np.sin(np.arange(7 * 200, dtype=np.float32)).reshape(7, 200)
    values, scales = quantize_rows(np.cos(np.arange(6 * 200, dtype=np.float32)).reshape(6, 200))
    scratch = np.empty(2 * x.size + SCRATCH * len(x), np.uint8)
    bias, y = np.arange(6, dtype=np.float32), np.empty((7, 6), np.float32)
    weights = weights_structure(values, scales, bias)
    for largest in (COARSE, finest(200)):
        addresses = ctypes.addressof(weights), x.ctypes.data, 7, largest, y.ctypes.data, scratch.ctypes.data
        kernel.library.multiply(kernel.instruction_set, *addresses)
        if not np.array_equal(y, multiply_in_numpy(x, values, scales, bias, largest)):
            raise ValueError("the library gives wrong results; install the package again")


def finest(inputs: int) -> int:
    """The largest value of a row that is quantized to 15 bits, or as many as sums of products in 32 bits allow."""
    return max(COARSE, min(128 * COARSE, (2**31 - 1) // (128 * inputs)))


def quantize_rows(x: Floats) -> tuple[I8, F32]:
    """Each row in 8 bits, and its scale: the largest of a row becomes 127 or -127. [M, I] -> [M, I], [M]."""
    values, scales = _quantize(x, COARSE)
    return values.astype(np.int8), scales


def _quantize(x: Floats, largest: int) -> tuple[F32, F32]:
    most = np.abs(x).max(axis=1, initial=0)
    inverse = np.divide(np.float32(largest), most, out=np.zeros_like(most), where=most != 0)
    return np.rint(x * inverse[:, None]), most / np.float32(largest)


def multiply_in_numpy(x: F32, values: I8, scales: F32, bias: F32 | None, largest: int = COARSE) -> F32:
    """x W + b, slowly: sums of integers are exact in 64 bits. [M, I] -> [M, O]."""
    rows, row_scales = _quantize(x, largest)
    sums = rows.astype(np.float64) @ values.T.astype(np.float64)
    y: F32 = sums.astype(np.float32) * (row_scales[:, None] * scales)
    return y if bias is None else y + bias
