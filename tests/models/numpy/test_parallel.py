"""Several threads compute the numbers that one computes."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.models.numpy import parallel
from spd_lsp.models.numpy.decoder import Int8
from spd_lsp.models.numpy.parallel import ParallelInt8, Threads


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_the_numbers_do_not_depend_on_the_number_of_threads(rows, has_bias, monkeypatch):
    random = np.random.default_rng(0)
    values = random.integers(-127, 128, (97, 64)).astype(np.int8)
    scales, bias = (random.random(97).astype(np.float32) for _ in range(2))
    x = random.normal(size=(rows, 64)).astype(np.float32)
    whole, threads = Int8(values, scales, bias if has_bias else None), Threads()
    product = ParallelInt8(whole, threads)
    monkeypatch.setattr(parallel, "_SMALLEST", 0)
    for count in (1, 2, 4, 3, 1):
        threads.set_count(count)
        np.testing.assert_array_equal(product(x), whole(x))


def test_small_products_are_left_to_one_thread():
    threads = Threads()
    threads.set_count(2)
    product = ParallelInt8(Int8(np.ones((8, 8), np.int8), np.ones(8, np.float32)), threads)
    product(np.ones((1, 8), np.float32))
    assert product.parts == [product.whole]
