"""Weights that do not fit into memory are refused unread."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from spd_lsp.models.fitting import DoesNotFit, check_memory, free_memory, memory_needed


def test_what_fits_passes_and_what_does_not_is_refused_with_numbers(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2_000_500)}, tmp_path / "model.safetensors")
    needed = memory_needed(tmp_path, 4000)
    check_memory("a", needed, needed, "cpu")
    check_memory("a", needed, None, "cpu")  # where the system does not say
    with pytest.raises(DoesNotFit, match=r"a takes 7\.5 GiB, but cpu has 3\.0 GiB of free memory; choose a"):
        check_memory("a", needed, 3 << 30, "cpu")


def test_packed_weights_count_as_they_are_stored(tmp_path: Path) -> None:
    """GPTQ and AWQ store eight weights of 4 bits in an integer of 32, bitsandbytes two in a byte."""
    packed = {"qweight": torch.zeros(1000, dtype=torch.int32), "absmax": torch.zeros(500, dtype=torch.uint8)}
    packed["fp8"] = torch.zeros(100, dtype=torch.float8_e4m3fn)
    packed["mask"] = torch.zeros(30, dtype=torch.bool)
    packed["scales"] = torch.zeros(10, dtype=torch.float16)
    save_file(packed, tmp_path / "model.safetensors")
    assert memory_needed(tmp_path, 2) == 4000 + 500 + 100 + 30 + 2 * 10
    assert memory_needed(tmp_path, 4) == 4000 + 500 + 100 + 30 + 4 * 10


def test_free_memory_is_what_linux_calls_available(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable: 5 kB\n")
    assert free_memory(tmp_path / "meminfo") == 5 * 1024
    assert free_memory(tmp_path / "none") is None
