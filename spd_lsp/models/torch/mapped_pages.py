"""Pages of files that weights are mapped from. What was read counts as memory until it is given back."""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path

from torch import Tensor

_DROP = 4  # MADV_DONTNEED: pages that were not written to are read from their file again
_MAPS = Path("/proc/self/maps")


class MappedPages:
    """The parts of this process's memory that are files, as they are now; none but on Linux."""

    def __init__(self) -> None:
        self.ranges = _file_ranges(_MAPS.read_text(encoding="utf-8")) if sys.platform == "linux" else []

    def give_back(self, weight: Tensor) -> None:
        """Drop the pages of a weight that nobody wrote to; only a file's, as others would lose their content."""
        first = weight.data_ptr()
        end = first + weight.numel() * weight.element_size()
        for low, high in self.ranges:
            if low <= first and end <= high and weight.is_contiguous():
                start = first - first % mmap.PAGESIZE
                ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DROP)


def _file_ranges(maps: str) -> list[tuple[int, int]]:
    """The addresses of the files among the lines that Linux shows of a process: those with an inode."""
    fields = [line.split(maxsplit=5) for line in maps.splitlines()]
    ends = [each[0].split("-") for each in fields if len(each) == 6 and each[4] != "0"]
    return [(int(low, 16), int(high, 16)) for low, high in ends]
