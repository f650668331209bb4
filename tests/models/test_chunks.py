"""A prompt is read in chunks, between which it can be stopped; the result is the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models.test_base import Recorder, ids_of, logits_after


def test_chunks_change_nothing_of_the_result():
    ids = ids_of(300)
    engine = Recorder()
    np.testing.assert_array_equal(engine.prefill(ids), logits_after(ids))
    assert engine.read_lengths == [64, 64, 64, 64, 44] and engine.positions_read == 300


def test_a_stopped_prompt_ends_before_its_next_chunk_and_what_was_read_is_not_read_again():
    engine = Recorder()
    ids, left = ids_of(300), iter(range(2))
    with pytest.raises(StopIteration):
        engine.prefill(ids, lambda: next(left))
    assert engine.positions_read == 128
    np.testing.assert_array_equal(engine.prefill(ids), logits_after(ids))
    assert engine.positions_read == len(ids)
