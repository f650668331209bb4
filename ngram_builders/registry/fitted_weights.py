"""What was fitted for a domain: by model, how much its orders are believed. A small file in the domain's folder.

It stands beside the table and not in it: it is about a model as much as about the table, and outlives a build.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import numpy as np

from ngram_builders.ngrams import HIGHEST_ORDER
from ngram_builders.registry.domains import INDEX_FILE, read_record, write_record
from ngram_builders.table.order_weights import OrderWeights

FITTED_WEIGHTS_FILE = "weights.msgpack"
_SHAPE = (HIGHEST_ORDER - 1, HIGHEST_ORDER - 1)


def read_fitted_weights(home: Path) -> dict[str, OrderWeights]:
    """Weights by model; what cannot be read counts as never fitted."""
    try:
        found = {
            str(model): _unpack(bytes(data)) for model, data in read_record(home / FITTED_WEIGHTS_FILE).items()
        }
    except (OSError, TypeError, ValueError, AttributeError):
        return {}
    return {model: weights for model, weights in found.items() if weights is not None}


def write_fitted_weights(home: Path, model: str, weights: OrderWeights) -> None:
    """Keep the weights of a domain for one model."""
    _write_all(home, {**read_fitted_weights(home), model: weights})


def delete_fitted_weights(home: Path, model: str) -> bool:
    """Go back to the weights that serve without fitting; whether there were others."""
    fits = read_fitted_weights(home)
    if model not in fits:
        return False
    _write_all(home, {name: weights for name, weights in fits.items() if name != model})
    return True


def _write_all(home: Path, fits: dict[str, OrderWeights]) -> None:
    """Write all weights, and have servers look at the domain again."""
    write_record(home / FITTED_WEIGHTS_FILE, {model: _pack(weights) for model, weights in sorted(fits.items())})
    with suppress(OSError):
        os.utime(home / INDEX_FILE)


def _pack(weights: OrderWeights) -> bytes:
    """Weights as bytes, always as many."""
    return np.array(weights, dtype="<f8").reshape(_SHAPE).tobytes()


def _unpack(data: bytes) -> OrderWeights | None:
    """The weights, or None if none were fitted; ValueError if they cannot be weights."""
    table = np.frombuffer(data, "<f8").reshape(_SHAPE)
    if not (np.isfinite(table).all() and (table >= 0).all() and (table.sum(axis=1) <= 1 + 1e-9).all()):
        raise ValueError("weights")
    return tuple(map(tuple, table.tolist())) if table.any() else None
