"""On a GPU: captured steps give what transformers gives there. Skipped where there is none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from spd_lsp.models.base import MAX_CACHED_PROMPTS
from spd_lsp.models.batch_scheduler import BatchScheduler
from spd_lsp.models.torch.convert import convert
from spd_lsp.models.torch.cuda_graphs import CudaCapture
from spd_lsp.models.torch.engine import TorchEngine
from spd_lsp.models.torch.select import distance, fastest_engine
from spd_lsp.models.transformers_engine import TransformersEngine
from tests.models.networks import FAST, VOCABULARY, random_network
from tests.models.torch.test_engine import ONE, ids_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
ROUNDING = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}  # relative to the logits' spread


def engines_of(name, dtype):
    network = random_network(FAST[name]).to(dtype).to("cuda")
    reports = []
    engine = TorchEngine(convert(network), CudaCapture(network.device), reports.append)
    return engine, TransformersEngine(network), reports


def near(found, expected, dtype):
    assert distance(np.atleast_2d(found), np.atleast_2d(expected)) < ROUNDING[dtype]


@pytest.mark.parametrize("name", FAST)
def test_what_the_decoder_computes_is_chosen(name):
    network = random_network(FAST[name]).to(torch.bfloat16).to("cuda")
    reports = []
    assert isinstance(fastest_engine(TransformersEngine(network), network, reports.append), TorchEngine)
    assert reports == []


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_prompts_steps_rows_and_drafts(dtype):
    engine, reference, reports = engines_of("qwen2", dtype)

    def work(one):
        mixture = ([5, 11, 5], np.array([0.5, 0.3, 0.2]))
        found = [one.prefill(ids_of(140)), one.step(*mixture), one.step([7], ONE)]
        found += [one.prefill([*ids_of(137), 3, 4]), one.step(*mixture)]
        for parents in ([0, 0, 0], [1, 1, 0], [2, 0]):
            found += list(one.step_rows([mixture] * len(parents), parents))
        found += [one.prefill(ids_of(700, 1)), one.step(*mixture)]
        return found

    for found, expected in zip(work(engine), work(reference), strict=True):
        near(found, expected, dtype)
    for one in (engine, reference):
        one.prefill(ids_of(20))
    for found, expected in zip(
        *(one.score_drafts([ids_of(9, 1), ids_of(1, 2), ids_of(14, 3)]) for one in (engine, reference)),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, atol=10 * ROUNDING[dtype])
    assert reports == [], "all was captured"
    assert engine.graphs


@pytest.mark.slow
def test_evicted_sequences_come_back_as_they_were():
    engine, reference, reports = engines_of("llama, tied", torch.float32)
    random = np.random.default_rng(5)
    prompts = [ids_of(60, seed) for seed in range(MAX_CACHED_PROMPTS + 1)]
    for _ in range(60):
        prompt = prompts[random.integers(len(prompts))]
        cut = int(random.integers(0, len(prompt) + 1))
        prompt[cut:] = random.integers(0, VOCABULARY, random.integers(1, 30)).tolist()
        near(engine.prefill(prompt), reference.prefill(prompt), torch.float32)
        near(engine.step([1, 2], np.full(2, 0.5)), reference.step([1, 2], np.full(2, 0.5)), torch.float32)
    assert reports == []


def test_threads_change_files_while_steps_of_others_are_captured():
    engine, reference, reports = engines_of("qwen2", torch.float32)
    expected = {}
    for length in range(40, 90, 7):
        expected[length] = reference.prefill(ids_of(length)), reference.step([5], ONE)
    other = [3, *ids_of(60, 1)]
    expected_other = reference.prefill(other)
    scheduler = BatchScheduler(engine)

    def work(seed):
        own, random = scheduler.new_engine(), np.random.default_rng(seed)
        for _ in range(30):
            length = int(random.choice(list(expected)))
            near(own.prefill(ids_of(length)), expected[length][0], torch.float32)
            near(own.step([5], ONE), expected[length][1], torch.float32)
            if random.random() < 0.5:
                near(own.prefill(other), expected_other, torch.float32)

    with ThreadPoolExecutor(9) as pool:
        list(pool.map(work, range(9)))
    assert reports == []


def test_the_likeliest_tokens_are_found_on_the_device():
    engine, reference, _ = engines_of("qwen3", torch.float32)
    engine.selects_on_device = True
    for one in (engine, reference):
        one.prefill(ids_of(30))
    for _ in range(3):
        logits = reference.step([5, 6], np.full(2, 0.5)).astype(np.float64)
        found = engine.step_top_k([5, 6], np.full(2, 0.5), 20, np.array([3, 90]), 0.5)
        assert found.ids.tolist() == np.argsort(-logits, kind="stable")[:20].tolist()
        np.testing.assert_allclose(found.extra_logits, logits[[3, 90]], atol=1e-3)
        assert found.log_z == pytest.approx(np.log(np.exp(logits / 0.5).sum()), rel=1e-4)


def test_a_wrong_id_does_not_end_the_device():
    engine, reference, _ = engines_of("qwen2", torch.float32)
    with pytest.raises(IndexError):
        engine.prefill([VOCABULARY + 1])
    near(engine.prefill(ids_of(20)), reference.prefill(ids_of(20)), torch.float32)
