"""A transformers network as a NumPy decoder, in the same memory.

Comes in: a network. Goes out: a `Decoder`. The network's own parameters become views of the fused matrices, so
that both can run and nothing is stored twice. What a network computes with its parameters is not looked at here: a
self-test compares the two.
"""

from __future__ import annotations

from typing import Any

import torch

from ngram_builders.arrays import Floats
from spd_lsp.models.numpy.decoder import Decoder, Shape
from spd_lsp.models.numpy.kv_cache import EVERYTHING
from spd_lsp.models.numpy.weights import Assembly, Unlike, compare_names

_PLAIN_ROTATIONS = {"default", "linear", "llama3", "yarn"}  # the angles of others change with the text's length
_WINDOW = "sliding_attention"  # the kind of a layer that does not see everything


def convert(network: Any) -> Decoder:
    """A decoder with this network's weights; raises `Unlike` if the network is of another shape."""
    config = network.config.get_text_config()
    compare(network, config)
    parameters = dict(network.named_parameters())
    for parameter in parameters.values():
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            raise Unlike(f"its weights are {parameter.dtype} on {parameter.device}")

    def find(name: str) -> Floats | None:
        found: Floats | None = parameters[name].detach().numpy() if name in parameters else None
        return found

    def keep(name: str, weight: Floats) -> None:
        parameters[name].data = torch.from_numpy(weight)

    return Assembly(find, keep).decoder(config.num_hidden_layers, shape_of(network, config))


def compare(network: Any, config: Any) -> None:
    """Raise `Unlike` where parameters, or settings that no probe shows, are not those of the decoder."""
    parameters = dict(network.named_parameters())
    compare_names(parameters.keys(), config.num_hidden_layers)
    for name, parameter in parameters.items():
        if name.endswith(("q_norm.weight", "k_norm.weight")) and len(parameter) != head_width(config):
            raise Unlike("it normalises all heads as one")
    if (getattr(config, "attention_chunk_size", None) or EVERYTHING) < config.max_position_embeddings:
        raise Unlike(f"its attention_chunk_size is {config.attention_chunk_size}")
    rotary = getattr(network.model, "rotary_emb", None)
    if rotary is None or getattr(rotary, "rope_type", None) not in _PLAIN_ROTATIONS:
        raise Unlike("its positions turn in another way")
    if 2 * len(rotary.inv_freq) != head_width(config):
        raise Unlike("it turns a part of each head")


def head_width(config: Any) -> int:
    """C, which some models choose freely."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def shape_of(network: Any, config: Any) -> Shape:
    """What does not show in the weights."""
    rotary = network.model.rotary_emb
    return Shape(
        query_heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head_width=head_width(config),
        epsilon=config.rms_norm_eps if hasattr(config, "rms_norm_eps") else config.norm_epsilon,
        frequencies=rotary.inv_freq.float().cpu().numpy(),
        rotation_scale=float(rotary.attention_scaling),
        max_positions=config.max_position_embeddings,
        windows=windows_of(config),
    )


def windows_of(config: Any) -> list[int]:
    """How many positions each layer sees; none where that is as many as there can be."""
    window = getattr(config, "sliding_window", None) or EVERYTHING
    if window >= config.max_position_embeddings:
        return []
    kinds = getattr(config, "layer_types", None) or [_WINDOW] * config.num_hidden_layers
    return [window if kind == _WINDOW else EVERYTHING for kind in kinds]
