"""Order weights fitted for a table, by model: a small file in the table's folder.

It lies beside the table and not in it: it is about a model as much as about the table, and outlives a build.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import numpy as np

from ngram_builders.ngrams import HIGHEST_ORDER
from ngram_builders.registry.ngram_table import INDEX_FILE, read_record, write_record
from ngram_builders.table.order_weights import OrderWeights

FITTED_WEIGHTS_FILE = "weights.msgpack"
_SHAPE = (HIGHEST_ORDER - 1, HIGHEST_ORDER - 1)


def read_fitted_weights(home: Path) -> dict[str, OrderWeights]:
    """Read a table's order weights by model; none if the file is missing or damaged."""
    try:
        record = read_record(home / FITTED_WEIGHTS_FILE)
        return {str(model): _unpack(bytes(data)) for model, data in record.items()}
    except (OSError, TypeError, ValueError, AttributeError):
        return {}


def write_fitted_weights(home: Path, model: str, weights: OrderWeights) -> None:
    """Store a table's order weights for one model."""
    _write_all(home, {**read_fitted_weights(home), model: weights})


def delete_fitted_weights(home: Path, model: str) -> bool:
    """Go back to the default weights; whether there were others."""
    weights = read_fitted_weights(home)
    if weights.pop(model, None) is None:
        return False
    _write_all(home, weights)
    return True


def _write_all(home: Path, weights: dict[str, OrderWeights]) -> None:
    """Write all weights, and touch the index so that servers read the table again."""
    packed = {
        model: np.array(fitted, "<f8").reshape(_SHAPE).tobytes() for model, fitted in sorted(weights.items())
    }
    write_record(home / FITTED_WEIGHTS_FILE, packed)
    with suppress(OSError):
        os.utime(home / INDEX_FILE)


def _unpack(data: bytes) -> OrderWeights:
    """The weights; ValueError if they are invalid."""
    table = np.frombuffer(data, "<f8").reshape(_SHAPE)
    if not (np.isfinite(table).all() and (table >= 0).all() and (table.sum(axis=1) <= 1 + 1e-9).all()):
        raise ValueError("weights")
    return tuple(map(tuple, table.tolist()))
