"""Tiny random models."""

from __future__ import annotations

import copy

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

VOCABULARY = 96
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
WINDOW = 24

NETWORKS = {
    "llama": LlamaConfig(**SMALL),
    "llama, tied": LlamaConfig(**SMALL, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**SMALL),
}


def random_network(config, seed=0):
    """A model with random weights, biases and norms too: those that begin as 0 or 1 would hide mistakes."""
    torch.manual_seed(seed)
    network = AutoModelForCausalLM.from_config(copy.deepcopy(config)).eval()  # a network changes its own
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:
                parameter += 0.2 * torch.randn_like(parameter)
            else:
                parameter *= 3
    return network


def ids_of(length, seed=0):
    """Tokens at random, none of them special."""
    return np.random.default_rng(seed).integers(3, VOCABULARY, length).tolist()


def plain_logits(network, ids):
    """The logits after all ids, read at once by transformers. [V]."""
    with torch.inference_mode():
        return network(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].float().numpy()
