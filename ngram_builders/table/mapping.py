"""A file -> its bytes, mapped, so that nobody's cutting it short ends this process. Knows no formats.

A table is replaced by renaming, and who has the old one mapped keeps it. But a sync tool, `cp` or an editor may
write over the file itself, and who reads on beyond its new end gets a signal and is gone. The library's guard
makes that end read as zeros (mapped.h). Windows lets nobody cut a mapped file short. Elsewhere without the library
there is no guard, and `is_guarded` says so: what lives long then reads files whole.
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

_ONE_AT_A_TIME = threading.Lock()


def map_file(path: Path) -> mmap.mmap:
    """The whole file, mapped for reading; OSError or ValueError if that cannot be."""
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if guard := _guard():
        address = np.frombuffer(data, np.uint8).ctypes.data
        with _ONE_AT_A_TIME:
            place = guard.watch(address, len(data))
        if place < 0:
            raise OSError("more mapped files than are watched")
        weakref.finalize(data, guard.forget, place).atexit = False
    return data


def is_guarded() -> bool:
    """Whether mapped files may be cut short while they are read."""
    return sys.platform == "win32" or _guard() is not None


def _guard() -> ctypes.CDLL | None:
    """The library on its guard, None where there is none or it is not wanted."""
    return None if shared_library.is_disabled() or sys.platform == "win32" else _installed()


@cache
def _installed() -> ctypes.CDLL | None:
    """The library, asked first from now on when a read fails."""
    try:
        found, system = shared_library.open_library(shared_library.LIBRARY), ctypes.CDLL(None)
        given = [ctypes.cast(getattr(system, name), ctypes.c_void_p) for name in ("sigaction", "mmap", "raise")]
    except (OSError, AttributeError, ValueError):  # `kernel.load_kernel` reports it
        return None
    return found if found.guard(*given, mmap.PAGESIZE) else None
