"""A file mapped into memory so that truncating it does not end this process. Knows no formats.

A table is replaced by renaming, and whoever has the old one mapped keeps it. But a sync tool, `cp` or an editor
may write over the file itself, and reading beyond its new end raises SIGBUS. The library's guard makes that end
read as zeros (sigbus_guard.h). Windows does not let a mapped file be truncated.
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

from ngram_builders.table.kernel import load_kernel

_WATCH_LOCK = threading.Lock()


def map_file(path: Path) -> mmap.mmap:
    """Map a whole file for reading; OSError or ValueError if that is not possible."""
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if sys.platform != "win32":
        address = np.frombuffer(data, np.uint8).ctypes.data
        with _WATCH_LOCK:
            guard = _install_guard()
            number = guard.watch(address, len(data))
        if number < 0:
            raise OSError("too many mapped files to guard")
        weakref.finalize(data, guard.unwatch, number).atexit = False
    return data


@cache
def _install_guard() -> ctypes.CDLL:
    """Let the library handle SIGBUS from now on."""
    library = load_kernel()
    system = ctypes.CDLL(None)
    functions = [ctypes.cast(getattr(system, name), ctypes.c_void_p) for name in ("sigaction", "mmap", "raise")]
    if not library.install_guard(*functions, mmap.PAGESIZE):
        raise OSError("the system lets no process handle SIGBUS")
    return library
