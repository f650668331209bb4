"""Whether a model fits: into memory, and its config.json into its weights, checked before anything is allocated.

A number in a small file must not cost memory or time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError
from spd_lsp.models.checkpoint.weight_files import tensor_sizes

_GIB = 1 << 30
_MAX_JSON_BYTES = 32 << 20  # usual configurations have a few thousand
_MAX_SIZE = 1 << 28  # of what is counted; contexts are longest, with some ten million tokens
# Counts and widths as the families call them; other numbers, such as the base of an angle, may be large.
_LAYERS = re.compile(r"n_layers?|num_(?:\w+_)?layers|(?:en|de)coder_layers")
_SIZE = re.compile(r"n(?:um)?_\w+|\w+_(?:size|dim|window|embeddings|positions|heads|layers|experts)|d_model|d_ff")


SMALL_MODEL = 15_000_000  # parameters up to which calls, not bytes, take a step's time


class DoesNotFit(UserError):
    """The weights need more memory than there is."""


def memory_needed(folder: Path) -> int:
    """About how many bytes the weights in a folder take on a CPU, where they are computed in 32 bits."""
    return 4 * sum(tensor_sizes(folder))


def check_memory(folder: Path, bytes_each: int, free: int | None, device: str) -> None:
    """Raise `DoesNotFit` if the weights of a folder, so many bytes a number, are larger than the free memory."""
    count = sum(tensor_sizes(folder))
    needed = count * bytes_each
    if free is not None and needed > free:
        raise DoesNotFit(
            f"{folder.name} has {count / 1e9:.1f} billion parameters, which take {needed / _GIB:.1f} GiB, but "
            f"{device} has {free / _GIB:.1f} GiB of free memory; choose a smaller model"
        )


def check_free_memory(name: str, needed: int, free: int | None) -> None:
    """Raise `DoesNotFit` if weights of so many bytes are larger than the free memory."""
    if free is not None and needed > free:
        raise DoesNotFit(
            f"{name} takes {needed / _GIB:.1f} GiB, but there is {free / _GIB:.1f} GiB of free memory; choose a "
            "smaller model, or one with fewer bits a weight"
        )


def free_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that a program can take without swapping, if the system says so."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _read_json(path: Path) -> Any:
    """The content of a small file; ValueError for one that is too large or not JSON."""
    if (size := path.stat().st_size) > _MAX_JSON_BYTES:
        raise ValueError(f"it has {size >> 20} MB, and at most {_MAX_JSON_BYTES >> 20} MB are read")
    with path.open("rb") as file:
        return json.loads(file.read(_MAX_JSON_BYTES))


def check_config_sizes(folder: Path) -> None:
    """Raise `UserError` if config.json names larger sizes than the weights have; a damaged one is read later."""
    path = folder / "config.json"
    try:
        config = _read_json(path)
    except (OSError, ValueError, RecursionError):
        return
    sizes = tensor_sizes(folder)
    for name, value in _named_sizes(config):
        most = min(_MAX_SIZE, len(sizes) if sizes and _LAYERS.fullmatch(name) else _MAX_SIZE)
        if value > most:
            raise UserError(f"{path}: {name} is {value:,}, which is more than {most:,}; restore the file")
    for name, numbers in _largest_matrices(config):
        if sizes and numbers > sum(sizes):
            raise UserError(
                f"{path}: {name} needs a matrix of {numbers:,} numbers, but all weights have {sum(sizes):,}; "
                "restore the files of one model"
            )


def _named_sizes(config: Any) -> Iterator[tuple[str, int]]:
    """The counts and widths in a configuration, at any depth."""
    stack = [config]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(node)
        elif isinstance(node, dict):
            for name, value in node.items():
                if isinstance(value, int) and _SIZE.fullmatch(name):
                    yield name, value
                elif isinstance(value, (dict, list)):
                    stack.append(value)


def _largest_matrices(config: Any) -> Iterator[tuple[str, int]]:
    """How many numbers the largest matrices of a decoder have at least, by what makes them large."""
    text = config.get("text_config") if isinstance(config, dict) else None
    for part in (config, text):
        width = part.get("hidden_size") if isinstance(part, Mapping) else None
        if isinstance(part, Mapping) and isinstance(width, int):
            for name in ("vocab_size", "hidden_size", "intermediate_size"):
                if isinstance(size := part.get(name), int):
                    yield name, size * (1 if name == "vocab_size" else width)
