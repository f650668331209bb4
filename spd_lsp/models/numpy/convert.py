"""A transformers network as a NumPy decoder, in the same memory.

The network's own parameters become views of the fused matrices, so that both can run and nothing is stored twice.
Whether the decoder computes what the network does with its parameters is left to the self-test.
"""

from __future__ import annotations

from typing import Any

import torch

from ngram_builders.arrays import Floats
from spd_lsp.models.numpy.decoder import Decoder, DecoderConfig
from spd_lsp.models.numpy.kv_cache import NO_WINDOW
from spd_lsp.models.numpy.weights import NumpyWeights, UnsupportedModel, check_names

_FIXED_ROPE_TYPES = {"default", "linear", "llama3", "yarn"}  # the angles of others change with the text's length
_WINDOW = "sliding_attention"  # the type of a layer with a window


def convert(network: Any) -> Decoder:
    """A decoder with this network's weights; raises `UnsupportedModel` for another architecture."""
    config = decoder_config(network)
    parameters = dict(network.named_parameters())
    for parameter in parameters.values():
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            raise UnsupportedModel(f"its weights are {parameter.dtype} on {parameter.device}")

    def find(name: str) -> Floats | None:
        return parameters[name].detach().numpy() if name in parameters else None

    def moved(name: str, weight: Floats) -> None:
        parameters[name].data = torch.from_numpy(weight)

    layers = network.config.get_text_config().num_hidden_layers
    return NumpyWeights(find, config.epsilon, moved).decoder(layers, config)


def decoder_config(network: Any) -> DecoderConfig:
    """What the weights do not show; raises `UnsupportedModel` where the decoders would compute something else."""
    config = network.config.get_text_config()
    head_width = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    parameters = dict(network.named_parameters())
    check_names(parameters.keys(), config.num_hidden_layers)
    for name, parameter in parameters.items():
        if name.endswith(("q_norm.weight", "k_norm.weight")) and len(parameter) != head_width:
            raise UnsupportedModel("it normalises all heads as one")
    if (getattr(config, "attention_chunk_size", None) or NO_WINDOW) < config.max_position_embeddings:
        raise UnsupportedModel(f"its attention_chunk_size is {config.attention_chunk_size}")
    rotary = getattr(network.model, "rotary_emb", None)
    if rotary is None or getattr(rotary, "rope_type", None) not in _FIXED_ROPE_TYPES:
        raise UnsupportedModel("its position embeddings are of another type")
    if 2 * len(rotary.inv_freq) != head_width:
        raise UnsupportedModel("it rotates a part of each head")
    return DecoderConfig(
        query_heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head_width=head_width,
        epsilon=config.rms_norm_eps if hasattr(config, "rms_norm_eps") else config.norm_epsilon,
        frequencies=rotary.inv_freq.float().cpu().numpy(),
        rotation_scale=float(rotary.attention_scaling),
        max_positions=config.max_position_embeddings,
        windows=layer_windows(config),
    )


def layer_windows(config: Any) -> list[int]:
    """How many positions each layer sees; [] if all see everything."""
    window = getattr(config, "sliding_window", None) or NO_WINDOW
    if window >= config.max_position_embeddings:
        return []
    types = getattr(config, "layer_types", None) or [_WINDOW] * config.num_hidden_layers
    return [window if each == _WINDOW else NO_WINDOW for each in types]
