"""A run may start from a model with another tokenizer: its layers are kept, added ones start as the identity."""

from __future__ import annotations

import pytest
import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from spd_lsp.training.tokenizer import SPECIAL, learn_tokenizer
from spd_lsp.training.train import create_model, next_token_loss
from spd_lsp.training.transfer import add_layers, spell_tokens, transfer_vocabulary

IDS = torch.arange(40)[None] * 7 % 320


@pytest.fixture
def model(config: LlamaConfig) -> LlamaForCausalLM:
    return create_model(config, seed=3)


@pytest.fixture
def larger(sources: list[str]) -> Tokenizer:
    """A tokenizer of other texts and more tokens."""
    return learn_tokenizer(["func f(n int) error { return nil }\n" * 20, *sources[:3]], 400)


def test_a_token_of_the_same_bytes_keeps_its_row(
    model: LlamaForCausalLM, tokenizer: Tokenizer, larger: Tokenizer
) -> None:
    student = transfer_vocabulary(model, tokenizer, larger)
    old, new = model.model.embed_tokens.weight, student.model.embed_tokens.weight
    shared = tokenizer.get_vocab().keys() & larger.get_vocab().keys()
    assert {*SPECIAL} < shared
    for name in shared:
        assert torch.equal(new[larger.token_to_id(name)], old[tokenizer.token_to_id(name)]), name


def test_another_token_is_the_mean_of_those_that_spelt_it(
    model: LlamaForCausalLM, tokenizer: Tokenizer, larger: Tokenizer
) -> None:
    student = transfer_vocabulary(model, tokenizer, larger)
    old, new = model.model.embed_tokens.weight, student.model.embed_tokens.weight
    assert new.shape == (larger.get_vocab_size(), 16)
    unknown = larger.get_vocab().keys() - tokenizer.get_vocab().keys()
    assert "Ġerror" in unknown
    for name in unknown:
        ids = tokenizer.encode(larger.decode([larger.token_to_id(name)])).ids
        assert torch.allclose(new[larger.token_to_id(name)], old[ids].mean(dim=0)), name


def test_bytes_that_are_no_whole_character_are_spelt_too(tokenizer: Tokenizer) -> None:
    new = learn_tokenizer(["→←" * 50], 300)
    spelt = spell_tokens(tokenizer, new)
    half = new.token_to_id("âĨ")  # the first two of three bytes
    assert [tokenizer.id_to_token(place) for place in spelt[half]] == ["â", "Ĩ"]


def test_with_the_same_tokenizer_nothing_changes(model: LlamaForCausalLM, tokenizer: Tokenizer) -> None:
    student = transfer_vocabulary(model, tokenizer, tokenizer)
    assert torch.equal(student(input_ids=IDS).logits, model(input_ids=IDS).logits)
    assert student.lm_head.weight is student.model.embed_tokens.weight


@pytest.mark.parametrize("layers", [4, 6, 7])
def test_more_layers_change_nothing_at_first(model: LlamaForCausalLM, layers: int) -> None:
    deep = add_layers(model, layers)
    assert len(deep.model.layers) == deep.config.num_hidden_layers == layers
    assert torch.equal(deep(input_ids=IDS).logits, model(input_ids=IDS).logits)


def test_every_added_layer_learns(model: LlamaForCausalLM) -> None:
    deep = add_layers(model, 6)
    states = deep.model(input_ids=IDS).last_hidden_state
    next_token_loss(states, deep.model.embed_tokens.weight, IDS, torch.ones(1, 40), torch.float32).backward()
    for layer in deep.model.layers:
        assert layer.mlp.down_proj.weight.grad.abs().sum() > 0
        assert layer.self_attn.o_proj.weight.grad.abs().sum() > 0
