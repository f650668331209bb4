"""Mixtures: their tokens, their attention mask, and that a model learns to read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from spd_lsp.training.loss import next_token_loss
from spd_lsp.training.superposed import (
    MAX_MIXED_TOKENS,
    MAX_SPAN_LENGTH,
    Spans,
    draw_spans,
    measure_superposed,
    read_mixtures,
    sample_mixtures,
    span_mask,
    superposed_loss,
)
from spd_lsp.training.train import TrainingPlan, create_model, train

ROWS = np.random.default_rng(0).integers(5, 320, size=(4, 48)).astype(np.uint16)
PLAN = TrainingPlan(tokens=40 * 2 * 48, rows_a_step=2, warm_up=96, decay=3000, embedding_rate=0.02, low="float32")
SPANS = Spans(
    places=torch.tensor([3, 4, 5, 20, 21]),
    starts=torch.tensor([3, 3, 3, 20, 20]),
    sizes=torch.tensor([2, 2, 2, 4, 4]),
    concentration=torch.tensor([1.0, 1.0, 1.0, 4.0, 4.0]),
)


@pytest.fixture
def model(config: LlamaConfig) -> LlamaForCausalLM:
    return create_model(config, 0)


def row(number: int = 0) -> torch.Tensor:
    return torch.from_numpy(ROWS[number].astype(np.int64))[None]


@given(length=st.integers(16, 1024), seed=st.integers(0, 2**32))
def test_spans_are_apart_and_have_a_token_before_and_after(length: int, seed: int) -> None:
    spans = draw_spans(length, np.random.default_rng(seed))
    places, starts = spans.places.numpy(), spans.starts.numpy()
    assert places.min() >= 1
    assert places.max() <= length - 2
    assert (np.diff(places) >= 1).all()
    assert ((places - starts < MAX_SPAN_LENGTH) & (places >= starts)).all()
    assert (np.diff(places)[np.diff(starts) > 0] > 1).all()
    assert ((spans.sizes >= 2) & (spans.sizes <= MAX_MIXED_TOKENS)).all()


def test_mixtures_of_one_token_read_as_the_plain_text_does(model: LlamaForCausalLM) -> None:
    cache = DynamicCache()
    with torch.inference_mode():
        plain = model.model(input_ids=row(), past_key_values=cache, use_cache=True).last_hidden_state[0]
        ids = torch.stack([row()[0, SPANS.places], torch.zeros(5, dtype=torch.int64)], dim=1)
        weights = torch.tensor([[1.0, 0.0]]).expand(5, 2)
        mixed = read_mixtures(model, cache, SPANS, ids, weights)
    assert torch.allclose(mixed, plain[SPANS.places], atol=1e-5)


def test_a_span_is_read_as_the_decoder_reads_its_drafts(model: LlamaForCausalLM) -> None:
    """One position after the other, on a cache of the plain prompt and the mixtures before."""
    ids = torch.tensor([[7, 9], [8, 30], [11, 12], [5, 6], [70, 80]])
    weights = torch.tensor([[0.7, 0.3], [0.5, 0.5], [0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    with torch.inference_mode():
        whole, cache = DynamicCache(), DynamicCache()
        model.model(input_ids=row(), past_key_values=whole, use_cache=True)
        mixed = read_mixtures(model, whole, SPANS, ids, weights)
        model.model(input_ids=row()[:, :3], past_key_values=cache, use_cache=True)
        for at in range(3):
            x = weights[at] @ model.model.embed_tokens(ids[at])
            step = model.model(inputs_embeds=x[None, None], past_key_values=cache, use_cache=True)
            assert torch.allclose(mixed[at], step.last_hidden_state[0, 0], atol=1e-5)


def test_a_position_sees_the_text_before_its_span_and_the_span_so_far() -> None:
    seen = span_mask(24, SPANS)
    assert seen[2].nonzero().flatten().tolist() == [0, 1, 2, 24, 25, 26]
    assert seen[3].nonzero().flatten().tolist() == [*range(20), 27]


def test_a_mixture_holds_the_token_of_the_text_and_as_many_others_as_it_should() -> None:
    ids, logits = torch.arange(10, 18).expand(5, 8), torch.linspace(2, 0, 8).expand(5, 8)
    actual = torch.tensor([10, 99, 11, 99, 12])
    mixed, weights = sample_mixtures(
        ids, logits, actual, torch.full((5, 1), -3.0), SPANS, np.random.default_rng(0)
    )
    assert torch.allclose(weights.sum(dim=1), torch.ones(5))
    for at in range(5):
        size = int(SPANS.sizes[at])
        held = mixed[at, :size].tolist()
        assert (weights[at, size:] == 0).all()
        assert len(set(held)) == size
        assert int(actual[at]) in held
    assert mixed[1, :2].tolist() == [10, 99]


@pytest.mark.parametrize("concentration", [0.5, 4.0])
def test_a_weight_is_the_probability_that_the_text_holds_the_token(concentration: float) -> None:
    """Over many texts drawn from p, a token with weight gamma is the true one in a share gamma."""
    many, rng = 40_000, np.random.default_rng(0)
    logits = torch.tensor([1.0, 0.2, -0.5, -1.0])
    p = logits.softmax(-1).numpy()
    actual = torch.from_numpy(rng.choice(4, size=many, p=p))
    spans = Spans(*(torch.full((many,), value) for value in (1, 1, 4, concentration)))
    ids, weights = sample_mixtures(
        torch.arange(4).expand(many, 4), logits.expand(many, 4), actual, torch.zeros(many, 1), spans, rng
    )
    there = (ids == actual[:, None]).numpy()
    for low in (0.05, 0.25, 0.45, 0.65, 0.85):
        near = (weights.numpy() >= low) & (weights.numpy() < low + 0.1)
        assert there[near].mean() == pytest.approx(weights.numpy()[near].mean(), abs=0.02)


def test_the_loss_is_deterministic_per_step_and_differs_between_steps(model: LlamaForCausalLM) -> None:
    first, again, other = (superposed_loss(model, row(), PLAN, step).item() for step in (0, 0, 1))
    assert first == again != other


def test_gradients_reach_every_parameter_and_point_downhill(model: LlamaForCausalLM) -> None:
    loss = superposed_loss(model, row(), PLAN, 0)
    loss.backward()
    norms = [float(parameter.grad.norm()) for parameter in model.parameters() if parameter.grad is not None]
    assert len(norms) == len(list(model.parameters()))
    assert min(norms) > 0
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 1e-3 * parameter.grad
    assert superposed_loss(model, row(), PLAN, 0).item() < loss.item()


def test_without_a_superposed_share_the_loss_is_the_plain_loss(
    model: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spd_lsp.training.superposed.SUPERPOSED_SHARE", 0.0)
    states = model.model(input_ids=row()).last_hidden_state
    plain = next_token_loss(states, model.model.embed_tokens.weight, row(), torch.ones(1, 48), torch.float32)
    assert superposed_loss(model, row(), PLAN, 0).item() == pytest.approx(plain.item(), rel=1e-5)


@pytest.mark.slow
def test_a_model_learns_to_read_mixtures_and_a_stopped_run_resumes(config: LlamaConfig, tmp_path: Path) -> None:
    losses: list[float] = []
    whole = train(
        config, ROWS[:2], PLAN, tmp_path / "whole", lambda _, loss: losses.append(loss), objective=superposed_loss
    )
    assert losses[-1] < losses[0] - 1
    for _ in range(2):
        parts = train(
            config,
            ROWS[:2],
            PLAN,
            tmp_path / "parts",
            objective=superposed_loss,
            stop=lambda progress: progress.step % 20 == 0,
        )
    assert torch.equal(whole.model.embed_tokens.weight, parts.model.embed_tokens.weight)
    mixed, plain = measure_superposed(whole, ROWS[:2])
    assert plain < mixed < np.log(320)
