"""The torch engine gives what transformers gives, eagerly and captured, by every way of reading.

Captured here means traced once into operations on fixed tensors, as a CUDA graph is: whatever else a pass looks
at keeps its first value. No GPU takes part.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from spd_lsp.models.base import MAX_CACHED_PROMPTS
from spd_lsp.models.self_test import kl_divergence
from spd_lsp.models.topk import TopKRequest
from spd_lsp.models.torch.convert import convert
from spd_lsp.models.torch.engine import MIN_MIXED, TorchEngine, padded_length
from spd_lsp.models.transformers_engine import TransformersEngine
from tests.models.networks import FAST, VOCABULARY, random_network

ONE = np.ones(1)


class Traced:
    """Captures work as CUDA graphs do, and counts."""

    def __init__(self):
        self.captured = 0
        self.replayed = 0

    def __call__(self, work):
        self.captured += 1
        graph = make_fx(work)()
        found = graph()

        def replay():
            self.replayed += 1
            return found.copy_(graph())

        return replay


@pytest.fixture(scope="module", params=FAST.values(), ids=FAST.keys())
def network(request):
    return random_network(request.param)


WAYS = [(name, "eager") for name in FAST] + [
    (name, "captured") for name in ("llama, tied", "qwen2", "qwen3", "starcoder2, window")
]


@pytest.fixture(params=WAYS, ids=", ".join)
def engines(request):
    name, way = request.param
    network = random_network(FAST[name])
    return TorchEngine(convert(network), Traced() if way == "captured" else None), TransformersEngine(network)


def ids_of(length, seed=0):
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def same(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5 * np.abs(expected).max())


def both(engines, work):
    """What some work gives on both engines, compared."""
    for one, other in zip(*map(work, engines), strict=True):
        assert one.shape == other.shape
        same(one, other)


def test_prompts_and_superposed_steps(engines):
    mixture = ([5, 11, 5], np.array([0.5, 0.3, 0.2]))
    many = (ids_of(20, 4), np.full(20, 0.05))

    def work(engine):
        begun = [engine.prefill(ids_of(140)), engine.step(*mixture), engine.step([7], ONE), engine.step(*many)]
        return [
            *begun,
            engine.prefill(ids_of(137)),
            engine.prefill([*ids_of(137), 3, 4, 5]),
            engine.step(*mixture),
        ]

    both(engines, work)


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
            engine.step_rows(first, [2, 0, 1]),
            engine.step_rows(second, [2, 2]),
            engine.prefill(ids_of(21)),
        ]

    both(engines, work)


def test_drafts_of_several_lengths(engines):
    def work(engine):
        engine.prefill(ids_of(20))
        return [*engine.score_drafts([ids_of(9, 1), ids_of(1, 2), ids_of(14, 3)]), engine.step([7], ONE)]

    both(engines, work)


def test_token_probabilities(engines):
    both(engines, lambda engine: [engine.token_probabilities(ids_of(200))])


@pytest.fixture
def small():
    return random_network(FAST["llama, tied"])


def test_half_precision_equals_transformers_in_half_precision():
    network = random_network(FAST["qwen3"]).to(torch.bfloat16)
    for engine in (TorchEngine(convert(network)), TorchEngine(convert(network), Traced())):
        found, expected = (
            [one.prefill(ids_of(140)), one.step([5, 11], np.array([0.4, 0.6])), one.step([3], ONE)]
            for one in (engine, TransformersEngine(network))
        )
        assert kl_divergence(np.stack(found), np.stack(expected)) < 2e-3
        assert found[0].dtype == np.float32


@pytest.mark.parametrize("capture", [None, Traced()], ids=["eager", "captured"])
@pytest.mark.parametrize("count", [1, 20])
def test_a_step_returns_the_top_tokens_and_the_requested_ones(small, count, capture):
    engine, reference = TorchEngine(convert(small), capture), TransformersEngine(small)
    engine.selects_on_device = True
    for one in (engine, reference):
        one.prefill(ids_of(30))
    for number, (asked, tau) in enumerate([([3, 90, 3], 1.0), ([], 0.5), (ids_of(70, 1), 2.0)]):
        mixture = (ids_of(3, number), np.array([0.5, 0.3, 0.2]))
        expected = reference.step(*mixture).astype(np.float64)
        found = engine.step_top_k(*mixture, count, np.array(asked, dtype=int), tau)
        best = np.argsort(-expected, kind="stable")[:count]
        same(found.logits, expected[best])
        np.testing.assert_allclose(
            found.extra_logits, expected[asked], rtol=1e-4, atol=2e-5 * np.abs(expected).max()
        )
        assert found.ids.tolist() == best.tolist()
        assert found.log_z == pytest.approx(np.log(np.exp(expected / tau).sum()), rel=1e-5)
    beyond = engine.step_top_k([3], ONE, 1, np.array([4, VOCABULARY, 5]))
    assert np.isfinite(beyond.extra_logits).tolist() == [True, False, True]
    with pytest.raises(IndexError):
        engine.step_top_k([VOCABULARY], ONE, 1, np.array([4]))


@pytest.mark.parametrize("capture", [None, Traced()], ids=["eager", "captured"])
def test_each_row_returns_its_own_requested_tokens_however_many_there_are(small, capture):
    engine, reference = TorchEngine(convert(small), capture), TransformersEngine(small)
    engine.selects_on_device = True
    rows = [(ids_of(3), np.array([0.5, 0.3, 0.2])), ([4], ONE)]
    for asked in ([[3, 90], [5]], [[], [7, 8, 9]]):
        request = TopKRequest(5, [np.array(ids, dtype=np.int64) for ids in asked], 0.5)
        for parents in ([0, 0], [1, 0]):
            found, expected = [], []
            for one, results in ((engine, found), (reference, expected)):
                one.prefill(ids_of(30))
                one.step_rows(rows, [0, 0])
                results += one.step_rows_top_k(rows, parents, request)
            for one, other in zip(found, expected, strict=True):
                assert one.ids.tolist() == other.ids.tolist()
                same(one.logits, other.logits)
                np.testing.assert_allclose(one.extra_logits, other.extra_logits, rtol=1e-4, atol=1e-5)
                assert one.log_z == pytest.approx(other.log_z, rel=1e-5)


@pytest.mark.slow
def test_more_positions_than_there_was_room_for(small):
    def work(engine):
        begun = [engine.prefill(ids_of(509)), *(engine.step([token], ONE) for token in ids_of(6, 1))]
        rows = [engine.step_rows([([3], ONE), ([4], ONE)], [0, 0])]
        return [*begun, *rows, engine.prefill(ids_of(1100, 3)), engine.step([7], ONE), engine.prefill(ids_of(509))]

    for capture in (None, Traced()):
        both((TorchEngine(convert(small), capture), TransformersEngine(small)), work)


@pytest.mark.slow
def test_evicted_sequences_come_back_as_they_were(small):
    """More prompts in turn than are kept, each longer or cut shorter at random, with steps that are forgotten."""
    for capture in (None, Traced()):
        engines = TorchEngine(convert(small), capture), TransformersEngine(small)
        random = np.random.default_rng(5)
        prompts = [ids_of(60, seed) for seed in range(MAX_CACHED_PROMPTS + 1)]
        for _ in range(60):
            prompt = prompts[random.integers(len(prompts))]
            cut = int(random.integers(0, len(prompt) + 1))
            prompt[cut:] = random.integers(0, VOCABULARY, random.integers(1, 30)).tolist()
            both(engines, lambda engine, ids=prompt: [engine.prefill(ids), engine.step([1, 2], np.full(2, 0.5))])


def test_a_shape_is_captured_once_and_then_replayed(small):
    capture = Traced()
    engine = TorchEngine(convert(small), capture)
    engine.prefill(ids_of(30))
    assert capture.captured == 0, "long reads come in too many lengths"
    for number in range(5):
        engine.step(ids_of(1 + 3 * number), np.full(1 + 3 * number, 1 / (1 + 3 * number)))
    assert (capture.captured, capture.replayed) == (1, 5)
    engine.prefill([*ids_of(30), 5])
    assert capture.captured == 1, "one token is a step"
    for more in (3, 8, 2):
        engine.prefill([*ids_of(30), *ids_of(more, 1)])
    assert capture.captured == 2, "what is typed is filled up to one length"
    engine.step(ids_of(MIN_MIXED + 1), np.ones(MIN_MIXED + 1))
    assert capture.captured == 3


def test_graphs_of_a_pool_that_has_grown_are_captured_again(small):
    capture = Traced()
    engines = TorchEngine(convert(small), capture), TransformersEngine(small)

    def work(engine):
        engine.prefill(ids_of(30))
        first = engine.step([1], ONE)
        engine.step_rows([([3], ONE), ([4], ONE), ([5], ONE)], [0, 0, 0])
        engine.prefill(ids_of(30))
        return [first, engine.step([1], ONE)]

    both(engines, work)
    assert capture.captured == 3


def test_a_capture_that_fails_is_reported_once_and_steps_run_eagerly(small):
    def capture(work):
        work()
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    reports = []
    engines = TorchEngine(convert(small), capture, reports.append), TransformersEngine(small)
    both(engines, lambda engine: [engine.prefill(ids_of(9)), engine.step([5], ONE), engine.step([6], ONE)])
    assert reports == [
        "runs step by step: capturing one failed (operation not permitted when stream is capturing)"
    ]


def test_the_networks_own_weights_are_views_of_the_decoders(network):
    decoder = convert(network)
    block, layer = network.model.layers[0], decoder.layers[0]

    def lie_within(weight, fused):
        return weight.untyped_storage().data_ptr() == fused.untyped_storage().data_ptr()

    assert lie_within(block.self_attn.v_proj.weight, layer.queries_keys_values.weight)
    up, down = list(block.mlp.children())[-3:-1]  # before the activation
    assert lie_within(up.weight, layer.up.weight)
    assert lie_within(down.weight, layer.down.weight)
    assert lie_within(network.get_input_embeddings().weight, decoder.embedding)
    assert lie_within(network.get_output_embeddings().weight, decoder.head.weight)


@pytest.mark.parametrize(("length", "expected"), [(1, 512), (512, 512), (513, 1024), (1500, 1536), (2049, 3072)])
def test_attention_reads_up_to_rounded_lengths(length, expected):
    assert padded_length(length) == expected


@pytest.mark.slow
def test_a_step_is_one_graph_for_compilers_too(small):
    """No branch of the pass depends on numbers of the device."""
    engine = TorchEngine(convert(small))
    engine.prefill(ids_of(9))
    expected = engine.step([5, 6], np.full(2, 0.5))
    compiled = TorchEngine(convert(small), lambda work: work)
    compiled.read_recurring = torch.compile(engine.decoder.read, backend="eager", fullgraph=True)
    compiled.prefill(ids_of(9))
    same(compiled.step([5, 6], np.full(2, 0.5)), expected)
