"""Tiny random models of many families."""

from __future__ import annotations

import copy

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    Starcoder2Config,
)

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
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128}

WINDOW = 24

# What the torch decoder computes, in all variants.
FAST = {
    "llama": LlamaConfig(**SMALL),
    "llama, tied": LlamaConfig(**SMALL, tie_word_embeddings=True),
    "llama, biases": LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True),
    "llama, heads of their own width": LlamaConfig(**SMALL, head_dim=16),
    "llama, all heads their own keys": LlamaConfig(**{**SMALL, "num_key_value_heads": 4}),
    "llama, llama3 positions": LlamaConfig(**SMALL, rope_parameters=LLAMA3),
    "llama, yarn positions": LlamaConfig(**SMALL, rope_parameters=YARN),
    "qwen2": Qwen2Config(**SMALL),
    "qwen3": Qwen3Config(**SMALL, head_dim=16),
    "mistral": MistralConfig(**SMALL, sliding_window=None),
    "mistral, window": MistralConfig(**SMALL, sliding_window=WINDOW),
    "mistral, window shorter than drafts": MistralConfig(**SMALL, sliding_window=5),
    "qwen2, a layer with a window": Qwen2Config(
        **SMALL, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1
    ),
    "starcoder2": Starcoder2Config(**SMALL),
    "starcoder2, window": Starcoder2Config(**SMALL, sliding_window=WINDOW),
    "starcoder2, untied, without biases": Starcoder2Config(**SMALL, use_bias=False, tie_word_embeddings=False),
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
