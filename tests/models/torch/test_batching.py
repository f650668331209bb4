"""Requests that share the torch engine get what each gets alone, wherever their texts stand and whoever fails."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from spd_lsp.decoding.superposed import Start, superpose
from spd_lsp.models.base import Pass
from spd_lsp.models.batch_scheduler import SharedEngine
from spd_lsp.models.topk import Asking, unpacked
from spd_lsp.models.torch.convert import convert
from spd_lsp.models.torch.engine import TorchRunner
from spd_lsp.models.torch.kv_cache import Stage
from spd_lsp.models.transformers_engine import CausalModel
from spd_lsp.settings import Settings
from tests.models.networks import FAST, VOCABULARY, random_network
from tests.models.torch.test_engine import ONE, Traced, ids_of, same

SETTINGS = Settings(drafts=3, max_tokens=9)


@pytest.fixture(scope="module")
def network():
    return random_network(FAST["qwen2"])


@pytest.fixture(scope="module")
def reference(network):
    return CausalModel(network)


@pytest.fixture(params=["eager", "captured"])
def engine(request, network):
    return TorchRunner(convert(network), Traced() if request.param == "captured" else None)


def drafts_of(engine, prompt):
    start = Start(prompt, stop=lambda ids: len(ids) > 1 and ids[-1] % 5 == 0, history=prompt[-8:])
    return [draft.ids for draft in superpose(engine, start, SETTINGS).best]


def passes(engine):
    """Steps, short and long reads and the rows of drafts, of texts that are 3 to 60 tokens long."""
    held = [engine.empty() for _ in range(6)]
    for number, (cache, length) in enumerate(zip(held, (3, 17, 40, 8, 60, 21), strict=True)):
        engine.read([ids_of(length, number)], cache)
    step = engine.superpose([([5, 6], np.array([0.25, 0.75]))])
    return [
        Pass(held[0], embedded=step),
        Pass(held[1], ids=[ids_of(11, 9)], last=True),
        Pass(held[2], ids=[ids_of(5, 8)]),
        Pass(held[3].rows([0, 0]), embedded=engine.superpose([([7], ONE), ([8], ONE)])),
        Pass(held[4].rows([0, 0, 0]), ids=[ids_of(4, seed) for seed in range(3)]),
        Pass(held[5], ids=[ids_of(3, 7)], last=True),
    ]


def test_passes_over_different_prompts_are_read_as_each_alone(engine, reference):
    for found, expected in zip(
        engine.together(passes(engine)), reference.together(passes(reference)), strict=True
    ):
        assert found.shape == expected.shape
        same(found, expected)


def test_steps_at_different_positions_are_one_pass(engine):
    sizes = []
    run = engine.run
    engine.run = lambda group: sizes.append(len(group)) or run(group)
    seats = [engine.empty() for _ in range(5)]
    for number, text in enumerate(seats):
        engine.read([ids_of(10 + 7 * number, number)], text)
    sizes.clear()
    engine.together([Pass(text, embedded=engine.superpose([([3], ONE)])) for text in seats])
    assert sizes == [5]


def test_one_wrong_id_leaves_every_text_as_it_was(engine, reference):
    """A GPU that is asked for a row beyond a table gives up for good: it must not come to that."""
    found, expected = ([one.prefill(ids_of(30)), one.step([4], ONE)] for one in (engine, reference))
    asked = [
        Pass(engine.slots[-1].cache, ids=[ids_of(20, 2)]),
        Pass(engine.empty(), ids=[[VOCABULARY]], last=True),
    ]
    with pytest.raises(IndexError, match=f"expected ids from 0 to {VOCABULARY - 1}, found {VOCABULARY}"):
        engine.together(asked)
    for wrong in ([-1], [2**40]):
        with pytest.raises(IndexError):
            engine.step(wrong, ONE)
    same(np.stack([*found, engine.step([6], ONE)]), np.stack([*expected, reference.step([6], ONE)]))


def test_a_pass_that_breaks_off_leaves_every_text_as_it_was(engine, reference, monkeypatch):
    """Of several passes that are made for one call, the first has been made already."""
    for one in (engine, reference):
        one.prefill(ids_of(30))
    text, other = engine.slots[-1].cache, engine.empty()
    run, fail = engine.run, iter([False, True])

    def breaks(group):
        if next(fail):
            raise MemoryError
        return run(group)

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(engine, "run", breaks)
        engine.together([Pass(text, ids=[ids_of(20, 2)]), Pass(other, ids=[ids_of(4, 2)])])
    assert (text.length, other.length) == (30, 0)
    same(engine.step([6], ONE), reference.step([6], ONE))


def test_requests_for_few_logits_are_read_together_and_beside_others(engine, reference):
    mixtures = [(ids_of(3, seed), np.array([0.5, 0.3, 0.2])) for seed in range(4)]
    wanted = [(3, [5, 6], 1.0), (7, [1], 0.5), (0, [], 1.0), (20, ids_of(80, 1), 2.0)]
    texts = [engine.empty() for _ in range(4)]
    for number, text in enumerate(texts):
        engine.read([ids_of(10 + 7 * number, number)], text)
    asking = [
        Asking([mixture], count, [np.array(asked, dtype=int)], tau)
        for mixture, (count, asked, tau) in zip(mixtures, wanted, strict=True)
    ]
    asking[2] = engine.superpose([mixtures[2]])  # all logits of this one
    found = engine.together([Pass(text, embedded=one) for text, one in zip(texts, asking, strict=True)])
    for number, (logits, (count, asked, tau)) in enumerate(zip(found, wanted, strict=True)):
        reference.prefill(ids_of(10 + 7 * number, number))
        expected = reference.step(*mixtures[number])
        if number == 2:
            same(logits[0], expected)
            continue
        one = unpacked(logits[0], count, len(asked))
        assert one.ids.tolist() == np.argsort(-expected, kind="stable")[:count].tolist()
        same(np.array([*one.asked, one.log_z]), np.array([*expected[asked], np.log(np.exp(expected / tau).sum())]))


def test_requests_that_memory_does_not_suffice_for_are_read_a_few_at_a_time(engine, reference, monkeypatch):
    grow, said, asked = Stage.grow, [], []

    def small(self, rows, room):
        asked.append(rows)
        if rows > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        grow(self, rows, room)

    monkeypatch.setattr(Stage, "grow", small)
    engine.report = said.append
    texts = [(engine.empty(), reference.empty()) for _ in range(7)]
    for number, both in enumerate(texts):
        for one, text in zip((engine, reference), both, strict=True):
            one.read([ids_of(9 + number, number)], text)
    for _ in range(2):
        found, expected = (
            one.together([Pass(both[side], embedded=one.superpose([([5], ONE)])) for both in texts])
            for side, one in enumerate((engine, reference))
        )
        same(np.stack(found), np.stack(expected))
    assert said[-1] == f"reads {engine.at_once} requests at once: there is no memory for more"
    assert len(said) == len([rows for rows in asked if rows > 3]) == 2 - (engine.at_once > 1)


@pytest.mark.parametrize("editors", [1, 2, 9])
def test_seats_give_the_drafts_that_each_request_gets_alone(engine, reference, editors):
    prompts = [ids_of(20 + 9 * number, number) for number in range(editors)]
    expected = [drafts_of(reference, prompt) for prompt in prompts]
    shared = SharedEngine(engine)
    seats = [shared.seat() for _ in prompts]
    with ThreadPoolExecutor(editors) as pool:
        for _ in range(2):
            assert list(pool.map(drafts_of, seats, prompts)) == expected
        assert list(pool.map(drafts_of, seats[::-1], prompts)) == expected


@pytest.mark.slow
def test_seats_that_change_files_at_any_time_get_what_cold_runs_give(engine, reference):
    """Texts are copied, cut back and dropped in the threads of their requests while others are read."""
    expected = {length: reference.prefill(ids_of(length)) for length in range(40, 90, 7)}
    other = [3, *ids_of(60, 1)]
    expected_other = reference.prefill(other)
    shared = SharedEngine(engine)
    at_once = threading.Barrier(4)

    def work(seed):
        seat, random = shared.seat(), np.random.default_rng(seed)
        at_once.wait(20)
        for _ in range(12):
            length = int(random.choice(list(expected)))
            same(seat.prefill(ids_of(length)), expected[length])
            seat.step([5], ONE)
            if random.random() < 0.5:
                same(seat.prefill(other), expected_other)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_a_request_that_is_cancelled_leaves_its_prompt_sound(engine, reference):
    shared = SharedEngine(engine)
    stopped, other = shared.seat(), shared.seat()
    looks = iter([None, None, KeyError("cancelled")])

    def check():
        if (fault := next(looks)) is not None:
            raise fault

    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(drafts_of, other, ids_of(60, 3))
        with pytest.raises(KeyError):
            stopped.prefill(ids_of(400), check)
        assert beside.result() == drafts_of(reference, ids_of(60, 3))
    assert len(stopped.slots[-1].ids) == 256, "two chunks were read"
    same(stopped.prefill(ids_of(400)), reference.prefill(ids_of(400)))
