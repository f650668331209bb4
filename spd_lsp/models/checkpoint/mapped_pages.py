"""Pages of files that weights are mapped from. What was read counts as memory until it is given back."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from pathlib import Path

_DROP = 4  # MADV_DONTNEED: pages that were not written to are read from their file again
_MAPS = Path("/proc/self/maps")


class MappedPages:
    """The parts of this process's memory that are files, as they are now; none but on Linux."""

    def __init__(self) -> None:
        maps = _MAPS.read_text(encoding="utf-8", errors="surrogateescape") if sys.platform == "linux" else ""
        self.ranges = list(_file_ranges(maps))

    def give_back(self, first: int, size: int) -> None:
        """Drop pages that nobody wrote to, if they are a file's: others would lose their content."""
        end = first + size
        if any(low <= first and end <= high for low, high in self.ranges):
            start = first - first % mmap.PAGESIZE
            ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DROP)


def _file_ranges(maps: str) -> Iterator[tuple[int, int]]:
    """The addresses of files among the lines that Linux shows of a process: those with an inode."""
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[4] != "0":
            low, high = fields[0].split("-")
            yield int(low, 16), int(high, 16)
