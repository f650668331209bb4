"""Pages of weights: given back, and read again when they are used; what is no file's is left alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from spd_lsp.models.checkpoint.mapped_pages import MappedPages

NUMBERS = 1 << 20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, nothing is given back")


@pytest.fixture
def weight(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(torch.arange(NUMBERS, dtype=torch.int32).numpy().tobytes())
    return torch.from_file(str(path), size=NUMBERS, dtype=torch.int32)


def resident():
    """Of the file, in bytes."""
    one = Path("/proc/self/smaps").read_text(encoding="utf-8").partition("/weights\n")[2]
    return int(one.partition("Rss:")[2].split()[0]) << 10


def test_pages_are_given_back_and_read_again(weight):
    total = weight.sum()
    assert resident() == 4 * NUMBERS
    pages = MappedPages()
    for part in torch.split(weight, 100_000):
        pages.give_back(part.data_ptr(), part.nbytes)
    assert resident() < NUMBERS // 4
    assert weight.sum() == total


def test_what_is_not_mapped_from_a_file_keeps_its_content(weight):
    pages, own = MappedPages(), torch.ones(NUMBERS)
    pages.give_back(own.data_ptr(), own.nbytes)
    pages.give_back(weight.data_ptr(), weight.nbytes + (1 << 40))
    assert own.sum() == NUMBERS
