"""A small network of a model's architecture: it shows in a moment whether an engine computes what the model does.

Half precision and 8 bits hide small mistakes behind rounding, and a large network takes seconds to read a probe in
every way. The small one has as many layers and heads, which architectures may treat each in its own way.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from spd_lsp.models.base import Engine
from spd_lsp.models.self_test import SHORT_WINDOW, find_mismatch, probe_reference
from spd_lsp.models.torch.convert import UnsupportedModel, layer_windows
from spd_lsp.models.transformers_engine import TransformersEngine

_VOCABULARY, _HEAD_WIDTH = 64, 8


def check_small_network(config: Any, make_engine: Callable[[Any], Engine]) -> None:
    """Raise `UnsupportedModel` if an engine differs from transformers for a small network of this architecture."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(0)
        network = _small_network(config)
        for parameter in network.parameters():
            if parameter.dim() > 1:  # so large that attention and activations are far from linear
                parameter.data.normal_(0, 2 * parameter.shape[-1] ** -0.5)
            else:
                parameter.data += 0.2 * torch.randn_like(parameter)
        probe = probe_reference(TransformersEngine(network), _VOCABULARY)
        if mismatch := find_mismatch(make_engine(network), probe):
            raise UnsupportedModel(f"in single precision, {mismatch}")


def _small_network(config: Any) -> Any:
    """The same architecture with narrow heads and few tokens; `UnsupportedModel` if it cannot be made small."""
    small = copy.deepcopy(config)
    try:
        small.hidden_size = _HEAD_WIDTH * small.num_attention_heads
        small.intermediate_size = 2 * small.hidden_size
        small.head_dim, small.vocab_size, small.pad_token_id = _HEAD_WIDTH, _VOCABULARY, None
        if layer_windows(small):
            small.sliding_window = SHORT_WINDOW
        return AutoModelForCausalLM.from_config(small, dtype=torch.float32)  # type: ignore[no-untyped-call]
    except Exception as error:  # each architecture has its own ways to refuse
        raise UnsupportedModel(f"no small model of its kind can be made ({str(error).splitlines()[0]})") from error
