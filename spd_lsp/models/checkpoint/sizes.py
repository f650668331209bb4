"""Whether what a model's description says can be true of its weights, asked before anything is made as it says.

Comes in: a folder. Goes out: nothing, or a sentence. A number in a small file must not take memory or time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError
from spd_lsp.models.checkpoint.memory import parameters, tensors

_LARGEST_FILE = 32 << 20  # bytes of a description; the usual ones have a few thousand
_LARGEST_SIZE = 1 << 28  # of what a description counts; contexts are longest, with some ten million tokens
# Counts and widths as the families call them; other numbers, such as the base of an angle, may be large.
_LAYERS = re.compile(r"n_layers?|num_(?:\w+_)?layers|(?:en|de)coder_layers")
_SIZE = re.compile(r"n(?:um)?_\w+|\w+_(?:size|dim|window|embeddings|positions|heads|layers|experts)|d_model|d_ff")


def read_json(path: Path) -> Any:
    """What a small file says; ValueError for one that is too large or says nothing."""
    if path.stat().st_size > _LARGEST_FILE:
        raise ValueError(f"expected at most {_LARGEST_FILE >> 20} MB, found {path.stat().st_size >> 20} MB")
    with path.open("rb") as file:
        return json.loads(file.read(_LARGEST_FILE))


def demand_possible_sizes(folder: Path) -> None:
    """Raise `UserError` if a description counts more than its weights hold; a damaged one is named later."""
    path = folder / "config.json"
    try:
        described = read_json(path)
    except (OSError, ValueError, RecursionError):
        return
    held, weights = tensors(folder), parameters(folder)
    for name, value in _counted(described):
        most = min(_LARGEST_SIZE, held if held and _LAYERS.fullmatch(name) else _LARGEST_SIZE)
        if value > most:
            raise UserError(f"{path}: expected {name} of at most {most:,}, found {value:,}; restore the file")
    for name, number in _matrices(described):
        if weights and number > weights:
            raise UserError(
                f"{path}: expected {name} to fit the {weights:,} numbers of the weights, found that it takes "
                f"{number:,}; restore the file"
            )


def _counted(described: Any) -> Iterator[tuple[str, int]]:
    """The counts and widths in a description, at any depth."""
    waiting = [described]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting.extend(one)
        elif isinstance(one, dict):
            for name, value in one.items():
                if isinstance(value, int) and _SIZE.fullmatch(name):
                    yield name, value
                elif isinstance(value, (dict, list)):
                    waiting.append(value)


def _matrices(described: Any) -> Iterator[tuple[str, int]]:
    """How many numbers the largest matrices of a decoder must have, by what makes them large."""
    text = described.get("text_config") if isinstance(described, dict) else None
    for one in (described, text):
        width = one.get("hidden_size") if isinstance(one, Mapping) else None
        if isinstance(one, Mapping) and isinstance(width, int):
            for name in ("vocab_size", "hidden_size", "intermediate_size"):
                if isinstance(size := one.get(name), int):
                    yield name, size * (1 if name == "vocab_size" else width)
