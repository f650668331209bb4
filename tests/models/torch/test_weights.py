"""Incomplete or non-numeric weights, and those of models that are not causal, are refused with the reason."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from ngram_builders.errors import UserError
from spd_lsp.models.load import load
from tests.models.networks import NETWORKS, random_network
from tests.models.torch.test_families import FAMILIES


@pytest.fixture
def save(tmp_path):
    """Save a network, with some of its weights changed or, for None, left out."""

    def save(network, **changes):
        network.save_pretrained(tmp_path)
        path = tmp_path / "model.safetensors"
        weights = {**load_file(path), **changes}
        kept = {name: tensor for name, tensor in weights.items() if tensor is not None}
        save_file(kept, path, {"format": "pt"})
        return tmp_path

    return save


def amend(folder, **changes):
    path = folder / "config.json"
    described = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in described.items() if value is not None}))


def test_a_config_of_more_layers_than_there_are_weights_is_refused(save):
    folder = save(random_network(NETWORKS["llama"]))
    amend(folder, num_hidden_layers=3)
    named = r"lacks 9 tensors such as model\.layers\.2\.\S+; restore the files"
    with pytest.raises(UserError, match=named):
        load(folder, "cpu")


@pytest.mark.parametrize("family", ["gpt 2", "mixtral"])
def test_a_missing_tensor_of_any_family_is_refused(family, save):
    network = random_network(FAMILIES[family])
    last = sorted(load_file(save(network) / "model.safetensors"))[-1]
    with pytest.raises(UserError, match=r"lacks \d+ tensors|could not be opened"):
        load(save(network, **{last: None}), "cpu")


@pytest.mark.parametrize("heads", [0, 3, "four"])
def test_a_config_that_makes_no_sense_is_refused(save, heads):
    folder = save(random_network(NETWORKS["llama"]))
    amend(folder, num_attention_heads=heads)
    with pytest.raises(UserError, match=r"config\.json: transformers cannot read it"):
        load(folder, "cpu")


def test_a_tensor_of_another_shape_is_refused(save):
    folder = save(random_network(NETWORKS["llama"]), **{"model.norm.weight": torch.ones(31)})
    with pytest.raises(UserError, match=r"could not be opened .*; restore"):
        load(folder, "cpu")


def test_what_is_tied_or_not_needed_may_be_missing_or_there(save):
    network = random_network(NETWORKS["llama, tied"])
    folder = save(network, **{"model.layers.7.surplus": torch.ones(3), "lm_head.weight": None})
    load(folder, "cpu")


def test_predictions_that_are_no_numbers_are_refused(save):
    network = random_network(NETWORKS["qwen2"])
    with torch.no_grad():
        network.model.norm.weight[3] = torch.nan
    with pytest.raises(UserError, match=r"are not numbers; restore"):
        load(save(network), "cpu")
