"""A prompt is read in chunks of a tenth of a second, so that it can be stopped; the result is the same."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.models.base import CHUNK_SECONDS, MAX_CHUNK, MIN_CHUNK
from tests.models.test_base import Recorder, ids_of, logits_after


class Gone(Exception):
    """Nobody waits any more."""


class TimedRecorder(Recorder):
    """An engine with a clock of its own, on which a pass takes some time and each of its tokens some more."""

    def __init__(self, a_pass: float, a_token: float) -> None:
        super().__init__()
        self.time = 0.0
        self.a_pass, self.a_token = a_pass, a_token
        self.clock = lambda: self.time

    def forward_batch(self, inputs):
        self.time += self.a_pass + self.a_token * (len(inputs[0].ids[0]) if inputs[0].ids else 1)
        return super().forward_batch(inputs)


SPEEDS = [(0.0, 0.012), (0.004, 0.004), (0.02, 0.00002)]


@pytest.mark.parametrize(("a_pass", "a_token"), SPEEDS)
@pytest.mark.parametrize("cancelled", [0.0, 0.05, 0.33, 1.0])
def test_a_cancelled_prompt_is_stopped_within_a_tenth_of_a_second(a_pass, a_token, cancelled):
    engine = TimedRecorder(a_pass, a_token)

    def check() -> None:
        if engine.time >= cancelled:
            raise Gone

    with pytest.raises(Gone):
        engine.prefill(ids_of(100_000), check)
    assert engine.time <= cancelled + CHUNK_SECONDS + 1e-9


@pytest.mark.parametrize(("a_pass", "a_token"), SPEEDS)
def test_chunks_change_nothing_but_the_time(a_pass, a_token):
    ids = ids_of(3000)
    engine = TimedRecorder(a_pass, a_token)
    np.testing.assert_array_equal(engine.prefill(ids), logits_after(ids))
    assert sum(engine.read_lengths) == engine.positions_read == 3000


def test_a_fast_engine_reads_long_chunks_and_a_slow_one_short_ones():
    fast, slow = TimedRecorder(0.02, 0.00002), TimedRecorder(0.0, 1.0)
    for engine in (fast, slow):
        engine.prefill(ids_of(2000))
    assert max(fast.read_lengths) == MAX_CHUNK
    assert set(slow.read_lengths) == {MIN_CHUNK}


def test_what_was_read_of_a_stopped_prompt_is_not_read_again():
    engine = TimedRecorder(0.0, 0.01)
    ids, left = ids_of(300), iter(range(5))
    with pytest.raises(StopIteration):
        engine.prefill(ids, lambda: next(left))
    before = engine.positions_read
    assert before == sum(engine.read_lengths) > 0
    np.testing.assert_array_equal(engine.prefill(ids), logits_after(ids))
    assert engine.positions_read == len(ids)
