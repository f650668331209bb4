"""Whether a model's weights fit into memory, said before they are read."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

from spd_lsp.engine.shards import weight_files
from spd_lsp.settings import UserError

GIB = 1 << 30
HEADER = struct.Struct("<Q")  # a safetensors file begins with the length of its description


class DoesNotFit(UserError):
    """The weights need more memory than there is."""


def demand_room(folder: Path, bytes_each: int, free: int | None, place: str) -> None:
    """Raise `DoesNotFit` if the weights of a folder, so many bytes a number, are larger than what is free."""
    count = parameters(folder)
    needed = count * bytes_each
    if free is not None and needed > free:
        raise DoesNotFit(
            f"expected {needed / GIB:.1f} GiB of free memory on {place} for the {count / 1e9:.1f} billion "
            f"parameters of {folder.name}, found {free / GIB:.1f} GiB; choose a smaller model"
        )


def parameters(folder: Path) -> int:
    """How many numbers the weights in a folder are; damaged files, which are named later, count as none."""
    return sum(numbers_in(path) for path in weight_files(folder))


def numbers_in(path: Path) -> int:
    """How many numbers one file of weights holds."""
    try:
        with path.open("rb") as file:
            [length] = HEADER.unpack(file.read(HEADER.size))
            if length > path.stat().st_size:
                return 0
            tensors = json.loads(file.read(length))
        return sum(math.prod(tensor["shape"]) for name, tensor in tensors.items() if name != "__metadata__")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error):
        return 0


def free_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that a program can take without swapping, where the system says so."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
