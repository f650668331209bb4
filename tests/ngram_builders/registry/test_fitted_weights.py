"""Fitted weights are kept by model, and damage to their file costs the weights and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ngram_builders.registry.fitted_weights import (
    FITTED_WEIGHTS_FILE,
    read_fitted_weights,
    write_fitted_weights,
)
from ngram_builders.registry.ngram_table import INDEX_FILE

ROWS = tuple(tuple(0.125 if n <= m else 0.0 for n in range(8)) for m in range(8))
OTHER = tuple(tuple(0.0625 if n <= m else 0.0 for n in range(8)) for m in range(8))


def test_weights_are_stored_per_model(tmp_path: Path) -> None:
    write_fitted_weights(tmp_path, "starter", ROWS)
    write_fitted_weights(tmp_path, "another/model", OTHER)
    assert read_fitted_weights(tmp_path) == {"starter": ROWS, "another/model": OTHER}


@pytest.mark.parametrize(
    "damage", [b"", b"\xc1", b"\x93\x01\x02\x03", b"\x81\xa1a\xc4\x02ab", b"\x81\xa1a\xc5\x02\x00" + b"\xff" * 512]
)
def test_a_damaged_file_counts_as_not_fitted_and_is_replaced(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / FITTED_WEIGHTS_FILE).write_bytes(damage)
    assert read_fitted_weights(tmp_path) == {}
    write_fitted_weights(tmp_path, "starter", ROWS)
    assert read_fitted_weights(tmp_path) == {"starter": ROWS}


def test_a_running_server_notices_by_the_index(tmp_path: Path) -> None:
    (tmp_path / INDEX_FILE).write_bytes(b"")
    before = (tmp_path / INDEX_FILE).stat().st_mtime_ns
    write_fitted_weights(tmp_path, "starter", ROWS)
    assert (tmp_path / INDEX_FILE).stat().st_mtime_ns > before


def test_weights_with_a_sum_above_one_are_ignored(tmp_path: Path) -> None:
    write_fitted_weights(tmp_path, "starter", tuple(map(tuple, np.full((8, 8), 0.5).tolist())))
    assert read_fitted_weights(tmp_path) == {}
