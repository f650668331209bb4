"""Requests that share an engine get what each would get alone, in fewer passes; errors stay with theirs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import cycle, islice

import numpy as np
import pytest

from spd_lsp.decoding.superposed import DecodingRequest, superpose
from spd_lsp.models.batch_scheduler import BatchScheduler
from spd_lsp.models.torch.engine import TransformersEngine
from spd_lsp.settings import Settings
from tests.models.networks import NETWORKS, VOCABULARY, ids_of, random_network

ONE = np.ones(1)
SETTINGS = Settings(drafts=3, max_tokens=9)


@pytest.fixture(scope="module")
def network():
    return random_network(NETWORKS["llama"])


@pytest.fixture
def engine(network):
    return TransformersEngine(network)


def drafts_of(engine, prompt):
    start = DecodingRequest(prompt, stop=lambda ids: len(ids) > 1 and ids[-1] % 5 == 0, history=prompt[-8:])
    return superpose(engine, start, SETTINGS)


@pytest.mark.parametrize(("editors", "prompts"), [(1, 4), (4, 8), (8, 8), (20, 20)])
def test_all_editors_together_keep_a_bounded_number_of_prompts(engine, editors, prompts):
    scheduler = BatchScheduler(engine)
    engines = [scheduler.new_engine() for _ in range(editors)]
    for number, own in enumerate(engines):
        for seed in range(5):
            own.prefill(ids_of(12, 5 * number + seed))
    assert sum(len(own.prompts) for own in engines) == prompts


@pytest.mark.parametrize("editors", [1, 2, 7])
def test_engines_give_the_drafts_that_each_request_gets_alone(engine, editors):
    prompts = [ids_of(20 + 9 * number, number) for number in range(editors)]
    expected = [drafts_of(engine, prompt).best for prompt in prompts]
    scheduler = BatchScheduler(engine)
    engines = [scheduler.new_engine() for _ in prompts]
    with ThreadPoolExecutor(editors) as pool:
        for _ in range(3):
            found = list(pool.map(drafts_of, engines, prompts))
            assert [[draft.ids for draft in one.best] for one in found] == [
                [draft.ids for draft in best] for best in expected
            ]


def test_requests_that_wait_during_a_pass_share_the_next_one(engine):
    """Six requests whose passes cost one, and a seventh that comes later joins them."""
    begun, go_on, sizes = threading.Event(), threading.Event(), []
    forward_batch = engine.forward_batch

    def watched(inputs):
        sizes.append(len(inputs))
        begun.set()
        assert go_on.wait(20)
        return forward_batch(inputs)

    engine.forward_batch = watched
    scheduler = BatchScheduler(engine)
    with ThreadPoolExecutor(7) as pool:
        first = pool.submit(scheduler.new_engine().prefill, ids_of(8))
        assert begun.wait(20)
        others = [pool.submit(scheduler.new_engine().prefill, ids_of(2 + number, number)) for number in range(6)]
        while len(scheduler.queue) < 6:
            assert not wait(others, 0.001).done
        go_on.set()
        wait([first, *others])
    assert sizes == [1, 6]


def test_an_error_of_one_input_is_raised_in_its_request_only(engine):
    scheduler = BatchScheduler(engine)
    prompts = [ids_of(12), [VOCABULARY + 5], ids_of(15, 1), ids_of(30, 2)]
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(scheduler.new_engine().prefill, prompt) for prompt in islice(cycle(prompts), 16)]
        wait(asked)
    for prompt, one in zip(islice(cycle(prompts), 16), asked, strict=True):
        if prompt == prompts[1]:
            assert isinstance(one.exception(), IndexError)
        else:
            np.testing.assert_allclose(one.result(), engine.prefill(prompt), rtol=1e-3, atol=1e-5)


def test_a_request_that_is_cancelled_leaves_the_others_and_its_own_prompt_sound(engine):
    scheduler = BatchScheduler(engine)
    stopped, other = scheduler.new_engine(), scheduler.new_engine()
    stopped.chunk = 8
    looks = iter([None, None, KeyError("cancelled")])

    def check():
        if (fault := next(looks)) is not None:
            raise fault

    with ThreadPoolExecutor(2) as pool:
        beside = pool.submit(drafts_of, other, ids_of(60, 3))
        with pytest.raises(KeyError):
            stopped.prefill(ids_of(400), check)
        expected = drafts_of(engine, ids_of(60, 3)).best
        assert [draft.ids for draft in beside.result().best] == [draft.ids for draft in expected]
    assert len(stopped.prompts[-1].ids) == 16, "two chunks were read"
    np.testing.assert_allclose(stopped.prefill(ids_of(400)), engine.prefill(ids_of(400)), rtol=1e-3, atol=1e-5)
