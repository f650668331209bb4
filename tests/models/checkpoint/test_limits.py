"""Numbers in small files cost neither memory nor time, and weights that do not fit are refused unread."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from ngram_builders.errors import UserError
from spd_lsp.models import load as model
from spd_lsp.models.checkpoint.hub import locate
from spd_lsp.models.checkpoint.limits import DoesNotFit, check_memory, free_memory, memory_needed
from tests.conftest import STARTER

MANY = [
    *({"num_hidden_layers": 100_000}, {"num_hidden_layers": 10**9}, {"hidden_size": 10**9}, {"vocab_size": 10**9}),
    *({"intermediate_size": 10**7}, {"num_attention_heads": 10**9}, {"max_position_embeddings": 10**9}),
    {"text_config": {"num_hidden_layers": 10**9}},
]


@pytest.fixture
def folder(tmp_path: Path, starter_network: Any) -> Path:
    """The starter as a Hugging Face folder."""
    starter_network.save_pretrained(tmp_path / "model")
    return Path(shutil.copy(STARTER / "tokenizer.json", tmp_path / "model")).parent


def change(path: Path, changes: dict[str, Any]) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("changes", MANY, ids=lambda changes: json.dumps(changes))
def test_a_config_with_larger_sizes_than_the_weights_is_refused_at_once(
    folder: Path, changes: dict[str, Any]
) -> None:
    change(folder / "config.json", changes)
    started = time.process_time()
    with pytest.raises(UserError, match=r"config.json: .* (is|needs) .*; restore the file"):
        model.load(folder, "cpu")
    assert time.process_time() - started < 3.0


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_file_as_large_as_a_disk_is_refused_by_its_size(folder: Path, name: str) -> None:
    os.truncate(folder / name, 10 << 30)  # takes no room on the disk
    with pytest.raises(UserError, match=f"{name} in .* has 10240 MB, more than the limit of 128 MB"):
        locate(str(folder))


def test_what_fits_passes_and_what_does_not_is_refused_with_numbers(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2_000_500)}, tmp_path / "model.safetensors")
    needed = memory_needed(tmp_path, 4000)
    check_memory("a", needed, needed, "cpu")
    check_memory("a", needed, None, "cpu")  # where the system does not say
    with pytest.raises(DoesNotFit, match=r"a takes 7\.5 GiB, but cpu has 3\.0 GiB of free memory; choose a"):
        check_memory("a", needed, 3 << 30, "cpu")


def test_free_memory_is_what_linux_calls_available(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable: 5 kB\n")
    assert free_memory(tmp_path / "meminfo") == 5 * 1024
    assert free_memory(tmp_path / "none") is None
