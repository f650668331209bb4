"""A model that does not fit is refused before it is read, with numbers."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file
from spd_lsp.models.checkpoint.memory import DoesNotFit, demand_room, free_memory, parameters


@pytest.fixture
def folder(tmp_path):
    save_file(
        {"a": torch.zeros(1000, 1000), "b": torch.zeros(500)}, tmp_path / "one.safetensors", {"format": "pt"}
    )
    save_file({"c": torch.zeros(1000, 1000, dtype=torch.float16)}, tmp_path / "two.safetensors")
    return tmp_path


def test_all_files_count(folder):
    assert parameters(folder) == 2_000_500


def test_weights_that_lie_there_twice_count_once(folder):
    index = {"weight_map": {"a": "one.safetensors", "b": "one.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert parameters(folder) == 1_000_500
    save_file({"a": torch.zeros(10)}, folder / "model.safetensors")
    assert parameters(folder) == 10


def test_what_fits_passes_and_what_does_not_is_refused_with_numbers(folder):
    demand_room(folder, 4, 4 * 2_000_500, "cpu")
    with pytest.raises(DoesNotFit, match=r"7\.5 GiB of free memory on cpu for the 0\.0 billion .* found 3\.0 GiB"):
        demand_room(folder, 4000, 3 << 30, "cpu")


def test_a_system_that_does_not_say_what_is_free_refuses_nothing(folder, tmp_path):
    assert free_memory(tmp_path / "none") is None
    demand_room(folder, 1 << 40, None, "cpu")


def test_free_memory_is_what_linux_calls_available(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable: 5 kB\n")
    assert free_memory(tmp_path / "meminfo") == 5 * 1024


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 20, b"\x02\0\0\0\0\0\0\0[]", b"\x04\0\0\0\0\0\0\0{}", b'\x07\0\0\0\0\0\0\0{"a":1}']
)
def test_damaged_files_are_left_to_who_reads_them(tmp_path, content):
    (tmp_path / "a.safetensors").write_bytes(content)
    assert parameters(tmp_path) == 0
