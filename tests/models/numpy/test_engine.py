"""The NumPy engine gives what transformers gives, by every way of reading, for every variant of its shape."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.models.numpy.convert import convert
from spd_lsp.models.numpy.decoder import NumpyEngine
from spd_lsp.models.numpy.kv_cache import INITIAL_TAIL
from spd_lsp.models.transformers_engine import TransformersEngine
from tests.models.networks import FAST, VOCABULARY, random_network

ONE = np.ones(1)


@pytest.fixture(scope="module", params=FAST.values(), ids=FAST.keys())
def network(request):
    return random_network(request.param)


@pytest.fixture
def engines(network):
    reference = TransformersEngine(network)
    return NumpyEngine(convert(network)), reference


def ids_of(length, seed=0):
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def both(engines, work):
    """What some work gives on both engines, compared."""
    found, expected = (work(engine) for engine in engines)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5 * np.abs(other).max())


def test_prompts_and_superposed_steps(engines):
    mixture = ([5, 11, 5], np.array([0.5, 0.3, 0.2]))
    both(engines, lambda engine: [engine.prefill(ids_of(140)), engine.step(*mixture), engine.step([7], ONE)])


@pytest.mark.slow
def test_rows_that_follow_their_parents(engines):
    first = [([token], ONE) for token in (5, 7, 9)]
    second = [([3, 4], np.array([0.5, 0.5])), ([8], ONE)]

    def work(engine):
        engine.prefill(ids_of(20))
        engine.step([1], ONE)
        return [
            engine.step_rows(first, [0, 0, 0]),
            engine.step_rows(second, [2, 0]),
            engine.step_rows(first, [1, 1, 0]),
        ]

    both(engines, work)


def test_drafts_of_several_lengths(engines):
    def work(engine):
        engine.prefill(ids_of(20))
        return [*engine.score_drafts([ids_of(9, 1), ids_of(1, 2), ids_of(4, 3)]), engine.step([7], ONE)]

    both(engines, work)


def test_token_probabilities(engines):
    both(engines, lambda engine: [engine.token_probabilities(ids_of(200))])


@pytest.mark.slow
def test_more_positions_than_there_was_room_for(network, monkeypatch):
    monkeypatch.setattr("spd_lsp.models.numpy.decoder.INITIAL_CAPACITY", room := 64)
    engines = NumpyEngine(convert(network)), TransformersEngine(network)

    def work(engine):
        engine.prefill(ids_of(room - 2))
        steps = [engine.step([token], ONE) for token in ids_of(5, 1)]
        rows = [engine.step_rows([([3], ONE), ([4], ONE)], [0, 0])]
        rows += [engine.step_rows([([token], ONE)] * 2, [0, 1]) for token in ids_of(INITIAL_TAIL + 3, 2)]
        return [*steps, *rows, engine.prefill(ids_of(3 * room, 3))]

    both(engines, work)


def test_a_cached_prompt_has_room_for_what_the_model_reads_and_no_more(network):
    """Four files took 72 MiB of a model with 1,024 positions."""
    engine = NumpyEngine(convert(network))
    for seed in range(3):
        engine.prefill(ids_of(9, seed))
    assert len(engine.prompts) > 1
    assert {prompt.cache.keys.shape[2] for prompt in engine.prompts} == {engine.max_positions}


def test_the_networks_own_weights_are_views_of_the_decoders(network, engines):
    decoder = engines[0].decoder
    block = network.model.layers[0]
    assert np.shares_memory(
        block.self_attn.v_proj.weight.detach().numpy(), decoder.layers[0].queries_keys_values.weight
    )
    down = getattr(block.mlp, "down_proj" if hasattr(block.mlp, "down_proj") else "c_proj")
    assert np.shares_memory(down.weight.detach().numpy(), decoder.layers[0].down.weight)
    assert np.shares_memory(network.get_input_embeddings().weight.detach().numpy(), decoder.embedding)
