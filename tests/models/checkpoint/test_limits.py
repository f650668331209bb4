"""A model folder's description takes no memory and no time by a number that it names."""

from __future__ import annotations

import json
import os
import shutil
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from spd_lsp.models.checkpoint.memory import parameters, tensors

from ngram_builders.errors import UserError
from spd_lsp.models import load as model
from spd_lsp.models.checkpoint.hub import locate
from tests.conftest import STARTER

MANY = [
    *({"num_hidden_layers": 100_000}, {"num_hidden_layers": 10**9}, {"hidden_size": 10**9}, {"vocab_size": 10**9}),
    *({"intermediate_size": 10**7}, {"num_attention_heads": 10**9}, {"max_position_embeddings": 10**9}),
    {"text_config": {"num_hidden_layers": 10**9}},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the starter."""
    return Path(shutil.copytree(STARTER, tmp_path / "model"))


def change(path: Path, changes: dict[str, Any]) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("changes", MANY, ids=lambda changes: json.dumps(changes))
def test_a_description_that_its_weights_have_no_room_for_is_refused_at_once(
    folder: Path, changes: dict[str, Any]
) -> None:
    change(folder / "config.json", changes)
    started = time.process_time()
    with pytest.raises(UserError, match=r"config.json: expected .*; restore the file"):
        model.load(folder, "cpu")
    assert time.process_time() - started < 3.0


@pytest.mark.parametrize("layers", [100_000, 10**9])
def test_a_record_of_too_many_layers_is_told_at_once_and_not_used(folder: Path, layers: int) -> None:
    from spd_lsp.models.numpy.recorded import open_recorded

    change(folder / "decoder.json", {"layers": layers})
    told: list[str] = []
    started = time.process_time()
    assert open_recorded(folder, told.append) is None
    assert "does not fit the weights" in told[-1]
    assert time.process_time() - started < 3.0


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_file_as_large_as_a_disk_is_refused_by_its_size(folder: Path, name: str) -> None:
    os.truncate(folder / name, 10 << 30)  # takes no room on the disk
    with pytest.raises(UserError, match=f"expected {name} of at most 128 MB, found 10240 MB"):
        locate(str(folder))


def test_a_header_that_claims_more_than_any_is_not_read(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(struct.pack("<Q", 9 << 30))
    os.truncate(weights, 10 << 30)
    assert (parameters(folder), tensors(folder)) == (0, 0)


def test_a_record_as_large_as_a_disk_is_not_read(folder: Path) -> None:
    os.truncate(folder / "decoder.json", 10 << 30)
    told: list[str] = []
    from spd_lsp.models.numpy.recorded import open_recorded

    assert open_recorded(folder, told.append) is None
    assert "expected at most 32 MB" in told[-1]
