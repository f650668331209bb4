"""The compiled library beside this file: where it is, and how its functions are called. Knows not what for.

`compile_kernel` makes it when the package is installed; where it could not, there is none.
"""

from __future__ import annotations

import ctypes
import os
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Any

KERNEL_VARIABLE = "SPD_LSP_KERNEL"  # 0 turns the library off
_LIBRARY_SUFFIX = ".dll" if sys.platform == "win32" else ".so"
_FOLDER = Path(__file__).parent
LIBRARY = _FOLDER / f"libkernel{_LIBRARY_SUFFIX}"
# In a source tree; an installed package has none.
SOURCE_FILES = tuple(_FOLDER / name for name in ("kernel.c", "rows.h", "sigbus_guard.h"))

_POINTER, _INTEGER = ctypes.c_void_p, ctypes.c_int64
Signature = tuple[Any, tuple[Any, ...]]  # the types of a function's result and arguments
_SIGNATURES: dict[str, Signature] = {
    "probabilities": (None, (_POINTER, *(_INTEGER,) * 3, _POINTER)),
    "successors": (_INTEGER, (_POINTER, *(_INTEGER,) * 3, _POINTER)),
    "mix": (None, (_POINTER, *(_INTEGER,) * 3, _POINTER)),
    "mix_candidates": (_INTEGER, (_POINTER, *(_INTEGER,) * 3, _POINTER, _INTEGER, _POINTER)),
}
_GUARD: dict[str, Signature] = {
    "install_guard": (_INTEGER, (*(_POINTER,) * 3, _INTEGER)),
    "watch": (_INTEGER, (ctypes.c_uint64, _INTEGER)),
    "unwatch": (None, (_INTEGER,)),
}


def is_disabled() -> bool:
    """Whether the user turned the library off."""
    return os.environ.get(KERNEL_VARIABLE) == "0"


def open_library(path: Path) -> ctypes.CDLL:
    """Load a library and declare its functions; ValueError if it is of other sources or another system."""
    signatures = _SIGNATURES if sys.platform == "win32" else _SIGNATURES | _GUARD
    if sys.byteorder != "little":
        raise ValueError("the compiled library is little-endian, this processor is not")
    try:
        library = ctypes.CDLL(str(path))
        functions = {name: getattr(library, name) for name in signatures}
        library.source_digest.restype = ctypes.c_uint64
    except (OSError, AttributeError) as error:
        raise ValueError(
            f"{path.name} is of another version or system ({error}); install the package again"
        ) from error
    if SOURCE_FILES[0].exists() and library.source_digest() != source_digest():
        raise ValueError(
            f"{path.name} was not compiled from the {SOURCE_FILES[0].name} beside it; install the package again"
        )
    for name, function in functions.items():
        function.restype, function.argtypes = signatures[name]
    return library


def source_digest() -> int:
    """The number that identifies the sources a library was compiled from."""
    whole = b"".join(source.read_bytes() for source in SOURCE_FILES)
    return int.from_bytes(blake2b(whole, digest_size=8).digest(), "little")
