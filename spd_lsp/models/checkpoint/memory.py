"""Whether a model's weights fit into memory, said before they are read."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

from ngram_builders.errors import UserError
from spd_lsp.models.checkpoint.shards import weight_files

_GIB = 1 << 30
_LONGEST_HEADER = 100_000_000  # bytes; safetensors opens no file with a longer one
_HEADER = struct.Struct("<Q")  # a safetensors file begins with the length of its description


class DoesNotFit(UserError):
    """The weights need more memory than there is."""


def demand_room(folder: Path, bytes_each: int, free: int | None, place: str) -> None:
    """Raise `DoesNotFit` if the weights of a folder, so many bytes a number, are larger than what is free."""
    count = parameters(folder)
    needed = count * bytes_each
    if free is not None and needed > free:
        raise DoesNotFit(
            f"expected {needed / _GIB:.1f} GiB of free memory on {place} for the {count / 1e9:.1f} billion "
            f"parameters of {folder.name}, found {free / _GIB:.1f} GiB; choose a smaller model"
        )


def parameters(folder: Path) -> int:
    """How many numbers the weights in a folder are; damaged files, which are named later, count as none."""
    return sum(_numbers_in(path) for path in weight_files(folder))


def tensors(folder: Path) -> int:
    """How many tensors the weights in a folder are."""
    return sum(len(_shapes_in(path)) for path in weight_files(folder))


def _numbers_in(path: Path) -> int:
    """How many numbers one file of weights holds."""
    return sum(map(math.prod, _shapes_in(path)))


def _shapes_in(path: Path) -> list[list[int]]:
    """The shapes of the tensors in one file of weights; none if it is damaged."""
    try:
        with path.open("rb") as file:
            [length] = _HEADER.unpack(file.read(_HEADER.size))
            if length > min(path.stat().st_size, _LONGEST_HEADER):
                return []
            described = json.loads(file.read(length))
        shapes = [tensor["shape"] for name, tensor in described.items() if name != "__metadata__"]
        return [[int(size) for size in shape] for shape in shapes]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error):
        return []


def free_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that a program can take without swapping, where the system says so."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
