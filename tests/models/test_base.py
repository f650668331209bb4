"""Prompts: no known prefix is read again, and a prompt can be stopped between chunks."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.models.base import Engine

VOCABULARY = 50


class History(list):
    """A cache that only knows which ids it holds."""

    def crop(self, length):
        del self[length:]

    def fork(self, length):
        return History(self[:length])

    @property
    def length(self):
        return len(self)


class Recorder(Engine):
    """An engine whose logits are a hash of all that was read, and which counts what it reads."""

    max_positions = 4096
    device = "cpu"

    def __init__(self):
        super().__init__()
        self.read_lengths = []

    def new_cache(self):
        return History()

    def forward_batch(self, inputs):
        [one] = inputs
        one.cache.extend(one.ids)
        if one.weights is not None:
            return [logits_after(one.cache)]
        self.read_lengths.append(len(one.ids))
        return [logits_after(one.cache)[None]]


def logits_after(ids):
    return np.random.default_rng(list(ids)).normal(size=VOCABULARY)


def ids_of(length, seed=0):
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def reads(engine, ids):
    """How many ids a prefill reads; its logits are those of a cold one."""
    engine.read_lengths.clear()
    np.testing.assert_array_equal(engine.prefill(ids), logits_after(ids))
    return sum(engine.read_lengths)


def test_only_new_tokens_are_read():
    engine = Recorder()
    ids = ids_of(300)
    assert reads(engine, ids) == 300
    for prompt, new in (([*ids, 1, 2, 3], 3), ([*ids, 1, 2, 3], 0), (ids[:-3], 1)):  # the last for its logits
        engine.step([3], np.ones(1))
        assert reads(engine, prompt) == new


def test_returning_to_another_file_takes_no_pass():
    engine = Recorder()
    files = [ids_of(200, seed) for seed in range(Engine.most_prompts)]
    for ids in files:
        reads(engine, ids)
    assert [reads(engine, ids) for ids in files] == [0] * Engine.most_prompts
    assert [reads(engine, [*ids, 7]) for ids in files] == [1] * Engine.most_prompts


def test_the_least_recently_used_prompt_is_evicted():
    engine = Recorder()
    files = [ids_of(200, seed) for seed in range(Engine.most_prompts + 1)]
    for ids in files[:-1]:
        reads(engine, ids)
    reads(engine, files[0])
    reads(engine, files[-1])  # takes the place of files[1]
    assert len(engine.prompts) == Engine.most_prompts
    assert reads(engine, files[0]) == 0
    assert reads(engine, files[1]) == 200


def test_another_place_in_a_file_reuses_the_shared_prefix_and_keeps_the_first_prompt():
    engine = Recorder()
    ids = ids_of(300)
    engine.prefill(ids)
    elsewhere = [*ids[:100], *ids_of(50, seed=1)]
    assert reads(engine, elsewhere) == 50
    assert reads(engine, ids) == 0


def test_any_order_of_prompts_gives_what_cold_runs_give():
    engine = Recorder()
    random = np.random.default_rng(5)
    prompts = [ids_of(40, seed) for seed in range(3)]
    for _ in range(200):
        prompt = prompts[random.integers(3)]
        cut = int(random.integers(0, len(prompt) + 1))
        prompt[cut:] = random.integers(0, VOCABULARY, random.integers(1, 30)).tolist()
        reads(engine, prompt)
        engine.step([1], np.ones(1))


def test_a_stopped_prompt_ends_before_its_next_chunk_and_what_was_read_is_not_read_again():
    engine = Recorder()
    ids, left = ids_of(300), iter(range(2))
    with pytest.raises(StopIteration):
        engine.prefill(ids, lambda: next(left))
    assert engine.positions_read == 128
    np.testing.assert_array_equal(engine.prefill(ids), logits_after(ids))
    assert engine.positions_read == len(ids)
