"""Requests that share the torch engine get what each gets alone, wherever their sequences are, whoever fails."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from spd_lsp.decoding.superposed import DecodingRequest, superpose
from spd_lsp.models.base import ForwardInput
from spd_lsp.models.batch_scheduler import BatchScheduler
from spd_lsp.models.topk import TopKRequest, unpack_top_k
from spd_lsp.models.torch.convert import convert
from spd_lsp.models.torch.engine import TorchEngine
from spd_lsp.models.torch.kv_cache import SlotPool
from spd_lsp.models.transformers_engine import TransformersEngine
from spd_lsp.settings import Settings
from tests.models.networks import FAST, VOCABULARY, random_network
from tests.models.torch.test_engine import ONE, Traced, ids_of, same

SETTINGS = Settings(drafts=3, max_tokens=9)


@pytest.fixture(scope="module")
def network():
    return random_network(FAST["qwen2"])


@pytest.fixture(scope="module")
def reference(network):
    return TransformersEngine(network)


@pytest.fixture(params=["eager", "captured"])
def engine(request, network):
    return TorchEngine(convert(network), Traced() if request.param == "captured" else None)


def drafts_of(engine, prompt):
    start = DecodingRequest(prompt, stop=lambda ids: len(ids) > 1 and ids[-1] % 5 == 0, history=prompt[-8:])
    return [draft.ids for draft in superpose(engine, start, SETTINGS).best]


def passes(engine):
    """Steps, short and long reads and the rows of drafts, of sequences of 3 to 60 tokens long."""
    held = [engine.new_cache() for _ in range(6)]
    for number, (cache, length) in enumerate(zip(held, (3, 17, 40, 8, 60, 21), strict=True)):
        engine.forward_ids([ids_of(length, number)], cache)
    step = [([5, 6], np.array([0.25, 0.75]))]
    return [
        ForwardInput(held[0], mixtures=step),
        ForwardInput(held[1], ids=[ids_of(11, 9)], last_only=True),
        ForwardInput(held[2], ids=[ids_of(5, 8)]),
        ForwardInput(held[3].select_rows([0, 0]), mixtures=[([7], ONE), ([8], ONE)]),
        ForwardInput(held[4].select_rows([0, 0, 0]), ids=[ids_of(4, seed) for seed in range(3)]),
        ForwardInput(held[5], ids=[ids_of(3, 7)], last_only=True),
    ]


def test_passes_over_different_prompts_are_read_as_each_alone(engine, reference):
    for found, expected in zip(
        engine.forward_batch(passes(engine)), reference.forward_batch(passes(reference)), strict=True
    ):
        assert found.shape == expected.shape
        same(found, expected)


def test_steps_at_different_positions_are_one_pass(engine):
    sizes = []
    run = engine.read_groups
    engine.read_groups = lambda group: sizes.append(len(group)) or run(group)
    engines = [engine.new_cache() for _ in range(5)]
    for number, text in enumerate(engines):
        engine.forward_ids([ids_of(10 + 7 * number, number)], text)
    sizes.clear()
    engine.forward_batch([ForwardInput(text, mixtures=[([3], ONE)]) for text in engines])
    assert sizes == [5]


def test_one_invalid_id_leaves_every_sequence_unchanged(engine, reference):
    """A GPU that is asked for a row beyond a table gives up for good: it must not come to that."""
    found, expected = ([one.prefill(ids_of(30)), one.step([4], ONE)] for one in (engine, reference))
    asked = [
        ForwardInput(engine.prompts[-1].cache, ids=[ids_of(20, 2)]),
        ForwardInput(engine.new_cache(), ids=[[VOCABULARY]], last_only=True),
    ]
    with pytest.raises(IndexError, match=f"expected ids from 0 to {VOCABULARY - 1}, found {VOCABULARY}"):
        engine.forward_batch(asked)
    for wrong in ([-1], [2**40]):
        with pytest.raises(IndexError):
            engine.step(wrong, ONE)
    same(np.stack([*found, engine.step([6], ONE)]), np.stack([*expected, reference.step([6], ONE)]))


def test_a_failed_pass_leaves_every_sequence_unchanged(engine, reference, monkeypatch):
    """Of several passes that are made for one call, the first has been made already."""
    for one in (engine, reference):
        one.prefill(ids_of(30))
    text, other = engine.prompts[-1].cache, engine.new_cache()
    run, fail = engine.read_groups, iter([False, True])

    def breaks(group):
        if next(fail):
            raise MemoryError
        return run(group)

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(engine, "read_groups", breaks)
        engine.forward_batch([ForwardInput(text, ids=[ids_of(20, 2)]), ForwardInput(other, ids=[ids_of(4, 2)])])
    assert (text.length, other.length) == (30, 0)
    same(engine.step([6], ONE), reference.step([6], ONE))


def test_requests_for_few_logits_are_read_together_and_beside_others(engine, reference):
    mixtures = [(ids_of(3, seed), np.array([0.5, 0.3, 0.2])) for seed in range(4)]
    wanted = [(3, [5, 6], 1.0), (7, [1], 0.5), (0, [], 1.0), (20, ids_of(80, 1), 2.0)]
    texts = [engine.new_cache() for _ in range(4)]
    for number, text in enumerate(texts):
        engine.forward_ids([ids_of(10 + 7 * number, number)], text)
    requests = [TopKRequest(count, [np.array(asked, dtype=int)], tau) for count, asked, tau in wanted]
    requests[2] = None  # all logits of this one
    found = engine.forward_batch(
        [
            ForwardInput(text, [mixture], top_k=request)
            for text, mixture, request in zip(texts, mixtures, requests, strict=True)
        ]
    )
    for number, (logits, (count, asked, tau)) in enumerate(zip(found, wanted, strict=True)):
        reference.prefill(ids_of(10 + 7 * number, number))
        expected = reference.step(*mixtures[number])
        if number == 2:
            same(logits[0], expected)
            continue
        one = unpack_top_k(logits[0], count, len(asked))
        assert one.ids.tolist() == np.argsort(-expected, kind="stable")[:count].tolist()
        same(
            np.array([*one.extra_logits, one.log_z]),
            np.array([*expected[asked], np.log(np.exp(expected / tau).sum())]),
        )


def test_requests_that_do_not_fit_in_memory_are_read_a_few_at_a_time(engine, reference, monkeypatch):
    grow, reports, asked = SlotPool.grow, [], []

    def small(self, rows, room):
        asked.append(rows)
        if rows > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        grow(self, rows, room)

    monkeypatch.setattr(SlotPool, "grow", small)
    engine.report = reports.append
    texts = [(engine.new_cache(), reference.new_cache()) for _ in range(7)]
    for number, both in enumerate(texts):
        for one, text in zip((engine, reference), both, strict=True):
            one.forward_ids([ids_of(9 + number, number)], text)
    for _ in range(2):
        found, expected = (
            one.forward_batch([ForwardInput(both[side], mixtures=[([5], ONE)]) for both in texts])
            for side, one in enumerate((engine, reference))
        )
        same(np.stack(found), np.stack(expected))
    assert reports[-1] == f"reads {engine.max_groups} requests at once: there is no memory for more"
    assert len(reports) == len([rows for rows in asked if rows > 3]) == 2 - (engine.max_groups > 1)


@pytest.mark.parametrize("editors", [1, 2, pytest.param(9, marks=pytest.mark.slow)])
def test_engines_give_the_drafts_that_each_request_gets_alone(engine, reference, editors):
    prompts = [ids_of(20 + 9 * number, number) for number in range(editors)]
    expected = [drafts_of(reference, prompt) for prompt in prompts]
    scheduler = BatchScheduler(engine)
    engines = [scheduler.new_engine() for _ in prompts]
    with ThreadPoolExecutor(editors) as pool:
        for _ in range(2):
            assert list(pool.map(drafts_of, engines, prompts)) == expected
        assert list(pool.map(drafts_of, engines[::-1], prompts)) == expected


@pytest.mark.slow
def test_engines_that_change_files_at_any_time_get_what_cold_runs_give(engine, reference):
    """Texts are copied, cut back and dropped in the threads of their requests while others are read."""
    expected = {length: reference.prefill(ids_of(length)) for length in range(40, 90, 7)}
    other = [3, *ids_of(60, 1)]
    expected_other = reference.prefill(other)
    scheduler = BatchScheduler(engine)
    at_once = threading.Barrier(4)

    def work(seed):
        own, random = scheduler.new_engine(), np.random.default_rng(seed)
        at_once.wait(20)
        for _ in range(12):
            length = int(random.choice(list(expected)))
            same(own.prefill(ids_of(length)), expected[length])
            own.step([5], ONE)
            if random.random() < 0.5:
                same(own.prefill(other), expected_other)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
