"""The compiled library beside this file: where it is, and how its functions are called. Knows not what for.

`compile_kernel` makes it when the package is built or installed as editable. It is a plain C library, so it fits
every Python, and its functions are called without Python's lock.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.ctypeslib import ndpointer

from ngram_builders.errors import UserError

_FOLDER = Path(__file__).parent
LIBRARY = _FOLDER / f"libkernel{'.dll' if sys.platform == 'win32' else '.so'}"
# In a source tree; an installed package has none.
SOURCE_FILES = tuple(_FOLDER / name for name in ("kernel.c", "rows.h", "sigbus_guard.h"))

_POINTER, _INTEGER = ctypes.c_void_p, ctypes.c_int64
_IDS, _P32, _P64 = (ndpointer(kind, flags="C") for kind in (np.int64, np.float32, np.float64))
_CONTEXTS = (_POINTER, _INTEGER, _INTEGER, _IDS)  # tables, K, L
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {  # the types of a function's result and arguments
    "probabilities": (None, (*_CONTEXTS, _INTEGER, _IDS, _P64, _P64, _IDS)),
    "successors": (_INTEGER, (*_CONTEXTS, _INTEGER, _IDS, _P64, _IDS)),
    "mix": (None, (*_CONTEXTS, _INTEGER, _IDS, _P64, _P64, _P64, _IDS)),
    "mix_candidates": (_INTEGER, (*_CONTEXTS, _INTEGER, _P32, _INTEGER, _P64, _IDS, _P64, _P64, _IDS)),
    "source_digest": (ctypes.c_uint64, ()),
}
if sys.platform != "win32":
    _SIGNATURES |= {
        "install_guard": (_INTEGER, (*(_POINTER,) * 3, _INTEGER)),
        "watch": (_INTEGER, (ctypes.c_uint64, _INTEGER)),
        "unwatch": (None, (_INTEGER,)),
    }


@cache
def load_kernel() -> ctypes.CDLL:
    """Return the library that was installed with the package."""
    return open_library(LIBRARY)


def open_library(path: Path) -> ctypes.CDLL:
    """Load a library and declare its functions; UserError if it is missing or of other sources."""
    try:
        library = ctypes.CDLL(str(path))
        functions = {name: getattr(library, name) for name in _SIGNATURES}
    except (OSError, AttributeError) as error:
        raise UserError(
            f"the n-gram kernel is missing or of another version or system ({error}); install spd-lsp again"
        ) from error
    for name, function in functions.items():
        function.restype, function.argtypes = _SIGNATURES[name]
    if SOURCE_FILES[0].exists() and library.source_digest() != source_digest():
        raise UserError(
            f"{path.name} was not compiled from the {SOURCE_FILES[0].name} beside it; install spd-lsp again"
        )
    return library


def source_digest() -> int:
    """The number that identifies the sources a library was compiled from."""
    whole = b"".join(source.read_bytes() for source in SOURCE_FILES)
    return int.from_bytes(blake2b(whole, digest_size=8).digest(), "little")
