"""A draft adapter learns on mixtures what the engine computes with it while decoding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from spd_lsp.models.numpy.convert import convert
from spd_lsp.models.numpy.decoder import NumpyEngine
from spd_lsp.models.numpy.recorded import DRAFT_ADAPTER, draft_adapter
from spd_lsp.training import draft_adapter as training
from spd_lsp.training.draft_adapter import (
    AdapterNetwork,
    FrozenModel,
    Mixtures,
    draw_mixtures,
    measure,
    train_adapter,
    write_adapter,
)
from spd_lsp.training.train import Progress, create_model

PROMPT = [5, 9, 300, 17, 42, 8]
DRAFTS = [[11, 12, 13], [11, 70, 71], [90, 91, 92]]  # each a token at each of three steps
GAMMA = np.array([0.5, 0.3, 0.2])


@pytest.fixture
def model(config: LlamaConfig) -> LlamaForCausalLM:
    model = create_model(config, seed=3)
    for parameter in model.parameters():
        parameter.data.mul_(4 if parameter.ndim == 2 else 1)  # so that a token makes a difference
    return model


@pytest.fixture
def network(config: LlamaConfig) -> AdapterNetwork:
    torch.manual_seed(1)
    network = AdapterNetwork(config.hidden_size, 8)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return network


def random_rows(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(5, 320, (count, 48)).astype(np.uint16)


def read_in_training(model: LlamaForCausalLM, network: AdapterNetwork, own: list[int]) -> torch.Tensor:
    """The logits after each token of a draft, as training computes them."""
    frozen = FrozenModel(model, len(PROMPT) + len(own))
    text = torch.tensor(PROMPT + own)
    embedding, at = frozen.embedding, len(PROMPT)
    mixed = torch.stack(
        [
            torch.from_numpy(GAMMA).float() @ embedding[[draft[step] for draft in DRAFTS]]
            for step in range(len(own))
        ]
    )
    share = float(GAMMA[DRAFTS.index(own)])
    gamma = torch.tensor([1.0] * at + [share] * len(own))
    starts = torch.tensor([*range(at), *[at] * len(own)])
    mixtures = Mixtures(torch.cat([embedding[PROMPT], mixed]), gamma, starts)
    with torch.no_grad():
        _, keys_values = frozen.read_text(text)
        x = frozen.read_mixtures(mixtures, keys_values)
        drafts = training._adapted(frozen, network, text, x, mixtures)
        return frozen.read_drafts(drafts, torch.arange(at, len(text)), starts, keys_values)


def test_the_engine_computes_what_was_trained(
    model: LlamaForCausalLM, network: AdapterNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_LOW", torch.float32)
    expected = [read_in_training(model, network, own).numpy() for own in DRAFTS]
    write_adapter(network, tmp_path / DRAFT_ADAPTER)
    adapter = draft_adapter(load_file(tmp_path / DRAFT_ADAPTER), model.config.hidden_size)
    engine = NumpyEngine(replace(convert(model), adapter=adapter))
    engine.prefill(PROMPT)
    for step, parents in enumerate([[0, 0, 0], [0, 1, 2], [0, 1, 2]]):
        before = [(PROMPT[-1], *draft)[step] for draft in DRAFTS]
        found = engine.step_drafts([draft[step] for draft in DRAFTS], before, GAMMA, parents)
        for row, logits in zip(found, expected, strict=True):
            np.testing.assert_allclose(row, logits[step], atol=2e-2 * np.abs(logits).max())


def test_a_new_adapter_changes_nothing(model: LlamaForCausalLM) -> None:
    row = torch.from_numpy(random_rows(1)[0].astype(np.int64))
    losses = measure(FrozenModel(model, len(row)), AdapterNetwork(16, 8), row, seed=0)
    torch.testing.assert_close(losses.apart, losses.mixed)


def test_a_draft_alone_is_read_as_without_an_adapter(network: AdapterNetwork) -> None:
    x, last, before = torch.randn(3, 4, 16)
    torch.testing.assert_close(network(x, last, before, torch.ones(4)), x)


def test_mixtures_hold_the_code_and_others_in_stretches(model: LlamaForCausalLM) -> None:
    row = torch.from_numpy(random_rows(1)[0].astype(np.int64))
    frozen = FrozenModel(model, len(row))
    mixtures = draw_mixtures(row, frozen.read_text(row)[0], frozen.embedding, seed=0)
    assert ((mixtures.gamma > 0) & (mixtures.gamma < 1)).all()
    assert (mixtures.starts <= torch.arange(len(row))).all()
    lengths = torch.unique(mixtures.starts, return_counts=True)[1]
    assert lengths.max() <= 15 and len(lengths) > 2
    for start in torch.unique(mixtures.starts):
        assert len(torch.unique(mixtures.gamma[mixtures.starts == start])) == 1
    again = draw_mixtures(row, frozen.read_text(row)[0], frozen.embedding, seed=0)
    torch.testing.assert_close(mixtures.embeddings, again.embeddings)


def test_an_adapter_learns_what_the_mixture_hides(model: LlamaForCausalLM, tmp_path: Path) -> None:
    """In these rows a token says which one follows, so a draft's own token is all that is needed."""
    rows = np.stack([(np.arange(48) * 7 + start) % 300 + 10 for start in range(40)]).astype(np.uint16)
    network = train_adapter(model, rows, 120, tmp_path)
    frozen, row = FrozenModel(model, 48), torch.from_numpy(rows[3].astype(np.int64))
    losses = measure(frozen, network, row, seed=5)
    hidden = losses.gamma < 0.5
    assert losses.apart[hidden].mean() < losses.mixed[hidden].mean() - 0.8  # nats


def test_training_that_was_stopped_ends_with_the_same_weights(model: LlamaForCausalLM, tmp_path: Path) -> None:
    def stop_at(step: int):
        return lambda progress: progress.step == step

    rows = random_rows(6)
    whole = train_adapter(model, rows, 4, tmp_path / "whole")
    for step in (1, 3, 4):
        parts = train_adapter(model, rows, 4, tmp_path / "parts", stop=stop_at(step))
    for name, weights in whole.weights().items():
        assert torch.equal(weights, parts.weights()[name]), name
    seen: list[Progress] = []
    train_adapter(model, rows, 4, tmp_path / "whole", report=lambda progress, loss: seen.append(progress))
    assert seen == []
