"""The torch engine gives what transformers gives, eagerly and captured, by every way of reading.

Captured here means traced once into operations on fixed tensors, as a CUDA graph is: whatever else a pass looks
at keeps its first value. No GPU takes part.
"""

from __future__ import annotations

import numpy as np
import pytest
from torch.fx.experimental.proxy_tensor import make_fx

from spd_lsp.engine.reference import CausalModel
from spd_lsp.engine.torch_conversion import convert
from spd_lsp.engine.torch_runner import TorchRunner
from tests.spd_lsp.engine.networks import FAST, VOCABULARY, random_network

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


@pytest.fixture(params=["eager", "captured"])
def engines(request, network):
    capture = Traced() if request.param == "captured" else None
    return TorchRunner(convert(network), capture), CausalModel(network)


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
        return [*engine.read_drafts([ids_of(9, 1), ids_of(1, 2), ids_of(14, 3)]), engine.step([7], ONE)]

    both(engines, work)


def test_likelihoods(engines):
    both(engines, lambda engine: [engine.likelihoods(ids_of(200))])
