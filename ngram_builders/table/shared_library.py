"""The compiled library beside this file: where it is, and how its functions are called. Knows not what for.

`compile_kernel` makes it when the package is installed; where it could not, there is none.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

KERNEL_VARIABLE = "SPD_LSP_KERNEL"  # 0 turns the library off
_FOLDER = Path(__file__).parent
LIBRARY = _FOLDER / ("libkernel.dll" if sys.platform == "win32" else "libkernel.so")
# In a source tree; an installed package has none.
SOURCE_FILES = tuple(_FOLDER / name for name in ("kernel.c", "rows.h", "sigbus_guard.h"))

_POINTER, _INTEGER = ctypes.c_void_p, ctypes.c_int64
_SIGNATURES = {  # name: result, arguments
    "probabilities": (None, (_POINTER, *(_INTEGER,) * 3, _POINTER)),
    "successors": (_INTEGER, (_POINTER, *(_INTEGER,) * 3, _POINTER)),
    "mix_candidates": (_INTEGER, (_POINTER, *(_INTEGER,) * 3, _POINTER, _INTEGER, _POINTER)),
}
_GUARD = {
    "install_guard": (_INTEGER, (*(_POINTER,) * 3, _INTEGER)),
    "watch": (_INTEGER, (ctypes.c_uint64, _INTEGER)),
    "unwatch": (None, (_INTEGER,)),
}


def is_disabled() -> bool:
    """Whether the user turned the library off."""
    return os.environ.get(KERNEL_VARIABLE) == "0"


def open_library(path: Path) -> ctypes.CDLL:
    """Load the library and declare its functions; ValueError if it was compiled from other sources."""
    if sys.byteorder != "little":
        raise ValueError("tables are little-endian, this processor is not")
    library = ctypes.CDLL(str(path))
    library.source_digest.restype = ctypes.c_uint64
    if SOURCE_FILES[0].exists() and library.source_digest() != source_digest(SOURCE_FILES):
        raise ValueError(f"{path.name} was not compiled from the kernel.c beside it; install the package again")
    for name, (result, arguments) in (_SIGNATURES if sys.platform == "win32" else _SIGNATURES | _GUARD).items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def source_digest(sources: Sequence[Path]) -> int:
    """The number that identifies the sources a library was compiled from."""
    whole = b"".join(source.read_bytes() for source in sources)
    return int.from_bytes(blake2b(whole, digest_size=8).digest(), "little")
