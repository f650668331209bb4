"""8-bit weights: close to the floats, used where they are faster, and only if predictions stay the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from spd_lsp.models import backend_selection as choice
from spd_lsp.models.backend_selection import fastest_engine
from spd_lsp.models.numpy import torch_int8 as int8
from spd_lsp.models.numpy.convert import convert
from spd_lsp.models.numpy.decoder import Dense
from spd_lsp.models.numpy.torch_int8 import TorchInt8, quantize
from spd_lsp.models.self_test import MAX_DIVERGENCE, kl_divergence
from spd_lsp.models.transformers_engine import TransformersEngine
from tests.models.networks import FAST, random_network


def dense(inputs=64, outputs=96):
    random = np.random.default_rng(0)
    weight, bias = random.normal(size=(inputs, outputs)), random.normal(size=outputs)
    return Dense(weight.astype(np.float32), bias.astype(np.float32))


@pytest.fixture
def network():
    return random_network(FAST["qwen2"])


@pytest.fixture
def always_faster(monkeypatch):
    monkeypatch.setattr(int8, "faster_in_8_bits", lambda group: [(dense, TorchInt8(dense)) for dense in group])
    monkeypatch.setattr(choice, "SMALL_MODEL", 0)


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_products_are_close_to_those_of_floats(rows):
    x = np.random.default_rng(1).normal(size=(rows, 64)).astype(np.float32)
    exact = dense()(x)
    found = TorchInt8(dense())(x)
    assert np.linalg.norm(found - exact) < 0.02 * np.linalg.norm(exact)
    assert found.dtype == np.float32


def test_seven_bits_are_used_where_eight_overflow(monkeypatch):
    asked = []
    product = TorchInt8.product

    def saturating(self, x, *, reduce_range):
        asked.append(reduce_range)
        return product(self, x, reduce_range=reduce_range) * (1 if reduce_range else 0.5)

    int8.overflows.cache_clear()
    monkeypatch.setattr(TorchInt8, "product", saturating)
    TorchInt8(dense())(np.ones((1, 64), np.float32))
    assert asked == [False, True]
    int8.overflows.cache_clear()


@pytest.mark.parametrize("reduce_range", [False, True])
def test_the_largest_products_are_right(reduce_range):
    if not reduce_range and int8.overflows():
        pytest.skip("this processor adds products in 16 bits")
    found = TorchInt8(Dense(np.ones((256, 8), np.float32))).product(
        np.ones((1, 256), np.float32), reduce_range=reduce_range
    )
    np.testing.assert_allclose(found, 256, rtol=1e-2)


def test_an_output_without_weights_is_its_bias():
    linear = dense()
    linear.weight[:, 5] = 0
    found = TorchInt8(linear)(np.ones((1, 64), np.float32))
    np.testing.assert_allclose(found[0, 5], linear.bias[5], rtol=1e-6)


def test_all_of_a_shape_are_timed_as_one_and_only_what_is_faster_is_replaced(network, monkeypatch):
    timed = []

    def faster(group):
        timed.append(len(group))
        return [
            (dense, TorchInt8(dense)) for dense in group if dense.weight.shape[1] > 90
        ]  # the head, and gate with up

    monkeypatch.setattr(int8, "faster_in_8_bits", faster)
    decoder = quantize(convert(network))
    assert sorted(timed) == [2, 2, 2, 3]  # those of both layers; the head has the shape of gate with up
    assert isinstance(decoder.head, TorchInt8)
    for layer in decoder.layers:
        assert [isinstance(linear, TorchInt8) for linear in layer.linears] == [False, False, True, False]


@pytest.mark.parametrize(("floats", "narrow", "taken"), [(2.0, 1.0, 2), (1.0, 2.0, 0), (1.1, 1.0, 0)])
def test_narrow_products_are_used_where_they_are_clearly_faster(monkeypatch, floats, narrow, taken):
    times = iter([floats, narrow])
    monkeypatch.setattr(int8, "shortest_time", lambda work: next(times))
    assert len(int8.faster_in_8_bits([dense(), dense()])) == taken


def test_where_nothing_is_faster_nothing_is_replaced(network, monkeypatch):
    monkeypatch.setattr(int8, "faster_in_8_bits", lambda group: [])
    assert quantize(convert(network)) is None


def test_a_torch_without_the_kernels_keeps_floats(network, monkeypatch):
    def missing(group):
        raise AttributeError("quantized")

    monkeypatch.setattr(int8, "faster_in_8_bits", missing)
    assert quantize(convert(network)) is None


def test_the_faster_engine_is_chosen_and_its_error_reported(network, always_faster):
    reports = []
    engine = fastest_engine(TransformersEngine(network), network, reports.append)
    assert isinstance(engine.decoder.head, TorchInt8)
    assert reports[0].startswith("runs in 8 bits: predictions differ by ")
    ids = list(range(20))
    expected = TransformersEngine(network).forward_ids([ids], TransformersEngine(network).new_cache())[0]
    assert 0 < kl_divergence(engine.forward_ids([ids], engine.new_cache())[0], expected) < MAX_DIVERGENCE


def test_an_engine_whose_predictions_change_is_not_chosen(network, always_faster, monkeypatch):
    quantised = choice.quantize

    def coarse(decoder):
        for layer in decoder.layers:
            layer.up.weight[0, 0] = 1e4  # one outlier leaves no steps for the other weights of its output
            layer.attention_norm.weight[:] *= 3
        return quantised(decoder)

    monkeypatch.setattr(choice, "quantize", coarse)
    reports = []
    engine = fastest_engine(TransformersEngine(network), network, reports.append)
    assert isinstance(engine.decoder.head, Dense)
    assert reports[0].startswith("runs in 32 bits: in 8 bits, predictions differ by ")


def test_divergence_is_that_of_kullback_and_leibler():
    p, q = np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([[0.25, 0.75], [0.25, 0.75]])
    expected = (0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)) / 2
    assert kl_divergence(np.log(q) + 3, np.log(p) - 5) == pytest.approx(expected)


def test_warnings_from_torch_are_hidden(recwarn):
    TorchInt8(dense())
    assert not recwarn.list
    assert torch.get_default_dtype() == torch.float32
