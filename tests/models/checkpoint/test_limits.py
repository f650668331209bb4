"""Weights that do not fit into memory are refused unread."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from spd_lsp.models.checkpoint.limits import DoesNotFit, check_memory, free_memory, memory_needed


def test_what_fits_passes_and_what_does_not_is_refused_with_numbers(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2_000_500)}, tmp_path / "model.safetensors")
    needed = memory_needed(tmp_path, 4000)
    check_memory("a", needed, needed, "cpu")
    check_memory("a", needed, None, "cpu")  # where the system does not say
    with pytest.raises(DoesNotFit, match=r"a takes 7\.5 GiB, but cpu has 3\.0 GiB of free memory; choose a"):
        check_memory("a", needed, 3 << 30, "cpu")


@pytest.mark.parametrize("content", [b"", b"\xff" * 20, b"\x02\0\0\0\0\0\0\0[]", b"\x04\0\0\0\0\0\0\0{}"])
def test_damaged_weights_count_as_nothing_until_they_are_opened(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    assert memory_needed(tmp_path) == 0


def test_free_memory_is_what_linux_calls_available(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable: 5 kB\n")
    assert free_memory(tmp_path / "meminfo") == 5 * 1024
    assert free_memory(tmp_path / "none") is None
