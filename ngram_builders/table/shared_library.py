"""The compiled library beside this file: where it is, and how its functions are called. Knows not what for.

`compile_kernel` makes it when the package is installed; where it could not, there is none. Who doubts it sets
SPD_LSP_KERNEL=0.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

KERNEL_VARIABLE = "SPD_LSP_KERNEL"
_FOLDER = Path(__file__).parent
LIBRARY = _FOLDER / ("libkernel.dll" if sys.platform == "win32" else "libkernel.so")
# In a source tree; an installed package has none.
SOURCE_FILES = tuple(_FOLDER / name for name in ("kernel.c", "rows.h", "mapped.h"))


def is_disabled() -> bool:
    """Whether somebody wants to do without."""
    return os.environ.get(KERNEL_VARIABLE) == "0"


def open_library(path: Path) -> ctypes.CDLL:
    """The library with its functions declared; ValueError if it was compiled from another source."""
    if sys.byteorder != "little":
        raise ValueError("tables are little-endian, this processor is not")
    library = ctypes.CDLL(str(path))
    library.source_digest.restype = ctypes.c_uint64
    if SOURCE_FILES[0].exists() and library.source_digest() != source_digest(SOURCE_FILES):
        raise ValueError(f"{path.name} was not compiled from the kernel.c beside it; install the package again")
    for function, result in ((library.mean, None), (library.successors, ctypes.c_int64)):
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, *(ctypes.c_int64,) * 4, ctypes.c_void_p]
        function.restype = result
    library.nested.argtypes = [*library.mean.argtypes[:6], ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    library.nested.restype = ctypes.c_int64
    if sys.platform != "win32":
        library.guard.argtypes = [*(ctypes.c_void_p,) * 3, ctypes.c_int64]
        library.watch.argtypes = [ctypes.c_uint64, ctypes.c_int64]
        library.guard.restype = library.watch.restype = ctypes.c_int64
        library.forget.argtypes, library.forget.restype = [ctypes.c_int64], None
    return library


def source_digest(sources: Sequence[Path]) -> int:
    """What the library says of the sources it was compiled from."""
    whole = b"".join(source.read_bytes() for source in sources)
    return int.from_bytes(blake2b(whole, digest_size=8).digest(), "little")
