"""The likeliest tokens of a vocabulary."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.decoding.candidates import TOP_PARTS, top


@given(st.integers(0, 1000), st.integers(1, 8), st.integers(1, 2000), st.integers(1, 9))
def test_top_of_a_vocabulary_is_the_same(seed, n, extra, values):
    x = np.random.default_rng(seed).integers(0, values, 4 * n * TOP_PARTS + extra).astype(np.float32)
    assert list(top(x, n)) == sorted(range(len(x)), key=lambda i: (-x[i], i))[:n]


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=60), st.integers(1, 70))
def test_top_orders_by_value_then_by_place(values, n):
    found = top(np.array(values, dtype=np.float32), n)
    assert list(found) == sorted(range(len(values)), key=lambda i: (-values[i], i))[:n]
