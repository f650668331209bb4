"""Whether a model fits: into memory, and its config.json into its weights, checked before anything is allocated.

A number in a small file must not cost memory or time.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError
from ngram_builders.programs import NEUTRAL_CWD
from spd_lsp.models.checkpoint.weight_files import tensor_sizes

_GIB = 1 << 30
_MAX_SIZE = 1 << 28  # of what is counted; contexts are longest, with some ten million tokens
# Counts and widths as the families call them; other numbers, such as the base of an angle, may be large.
_LAYERS = re.compile(r"n_layers?|num_(?:\w+_)?layers|(?:en|de)coder_layers")
_SIZE = re.compile(r"n(?:um)?_\w+|\w+_(?:size|dim|window|embeddings|positions|heads|layers|experts)|d_model|d_ff")


class DoesNotFit(UserError):
    """The weights need more memory than there is."""


def memory_needed(folder: Path, bytes_each: int = 4) -> int:
    """About how many bytes the weights in a folder take, which are computed in 32 bits on a CPU."""
    return bytes_each * sum(tensor_sizes(folder))


def check_memory(name: str, needed: int, free: int | None, device: str = "this machine") -> None:
    """Raise `DoesNotFit` if weights of this many bytes are larger than the free memory of a device."""
    if free is not None and needed > free:
        raise DoesNotFit(
            f"{name} takes {needed / _GIB:.1f} GiB, but {device} has {free / _GIB:.1f} GiB of free memory; "
            "choose a smaller model, or one with fewer bits a weight"
        )


def free_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that a program can take without swapping, if the system says so."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def free_gpu_memory() -> int | None:
    """Free bytes of the NVIDIA GPU that has most; None without one. Importing torch would take seconds."""
    if (program := shutil.which("nvidia-smi")) is None:
        return None
    query = [program, "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=5, check=True, cwd=NEUTRAL_CWD)
        return max(int(line) for line in done.stdout.split()) << 20
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def check_config_sizes(folder: Path) -> None:
    """Raise `UserError` if config.json names larger sizes than the weights have; a damaged one is read later."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_bytes())
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
