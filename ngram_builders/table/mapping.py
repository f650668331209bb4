"""A file mapped into memory so that truncating it does not end this process. Knows no formats.

A table is replaced by renaming, and whoever has the old one mapped keeps it. But a sync tool, `cp` or an editor
may write over the file itself, and reading beyond its new end raises SIGBUS. The library's guard makes that end
read as zeros (sigbus_guard.h). Windows does not let a mapped file be truncated. Elsewhere without the library
there is no guard, as `is_guarded` says: tables are then read into memory.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
import weakref
from functools import cache
from pathlib import Path

import numpy as np

from ngram_builders.table import shared_library

_WATCH_LOCK = threading.Lock()


def map_file(path: Path) -> mmap.mmap:
    """Map a whole file for reading; OSError or ValueError if that is not possible."""
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if guard := _guard():
        address = np.frombuffer(data, np.uint8).ctypes.data
        with _WATCH_LOCK:
            number = guard.watch(address, len(data))
        if number < 0:
            raise OSError("too many mapped files to guard")
        weakref.finalize(data, guard.unwatch, number).atexit = False
    return data


def is_guarded() -> bool:
    """Whether mapped files may be truncated while they are read."""
    return sys.platform == "win32" or _guard() is not None


def _guard() -> ctypes.CDLL | None:
    """The library with its guard installed; None where there is none or it is turned off."""
    return None if shared_library.is_disabled() or sys.platform == "win32" else _install_guard()


@cache
def _install_guard() -> ctypes.CDLL | None:
    """Let the library handle SIGBUS from now on."""
    try:
        library, system = shared_library.open_library(shared_library.LIBRARY), ctypes.CDLL(None)
        functions = [
            ctypes.cast(getattr(system, name), ctypes.c_void_p) for name in ("sigaction", "mmap", "raise")
        ]
    except ValueError:  # `load_kernel` logs it
        return None
    return library if library.install_guard(*functions, mmap.PAGESIZE) else None
