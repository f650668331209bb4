"""The weights of a transformers network, fused for the torch decoder, in the same memory.

Parameters are named as in a Llama or StarCoder2. Matrices that read the same input become one, so that a step
makes fewer and longer products. The network's own parameters become rows of it: nothing is stored twice. Whether
the decoder computes what the network does with its parameters is left to the self-test.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import torch

from spd_lsp.models.torch.decoder import (
    NO_WINDOW,
    Affine,
    DecoderConfig,
    Layer,
    Norm,
    TorchDecoder,
    gated_silu,
    gelu,
)

_EMBEDDING, _NORM, _HEAD = "model.embed_tokens", "model.norm", "lm_head"
_LAYER = (
    *("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    "post_attention_layernorm",
)
_GATED_MLP, _PLAIN_MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), ("mlp.c_fc", "mlp.c_proj")
_HEAD_NORMS = ("self_attn.q_norm", "self_attn.k_norm")
_FIXED_ROPE_TYPES = {"default", "linear", "llama3", "yarn"}  # the angles of others change with the text's length
_WINDOW = "sliding_attention"  # the type of a layer with a window


class UnsupportedModel(Exception):
    """Why the torch decoder cannot compute a model."""


def convert(network: Any) -> TorchDecoder:
    """A decoder with this network's weights; `UnsupportedModel`, and no change, for other architectures."""
    config = decoder_config(network)
    if len({(parameter.dtype, parameter.device) for parameter in network.parameters()}) > 1:
        raise UnsupportedModel("its weights differ in precision or device")
    weights = _Weights(network, config.epsilon)
    return TorchDecoder(
        config=config,
        embedding=weights.get(_EMBEDDING).data,
        layers=[weights.layer(n) for n in range(len(network.model.layers))],
        norm=weights.norm(_NORM),
        head=weights.fuse(_EMBEDDING if weights.find(f"{_HEAD}.weight") is None else _HEAD),
        frequencies=network.model.rotary_emb.inv_freq.float(),
    )


def layer_windows(config: Any) -> list[int]:
    """How many positions each layer sees; [] if all see everything."""
    window = getattr(config, "sliding_window", None) or NO_WINDOW
    if window >= config.max_position_embeddings:
        return []
    types = getattr(config, "layer_types", None) or [_WINDOW] * config.num_hidden_layers
    return [window if each == _WINDOW else NO_WINDOW for each in types]


def decoder_config(network: Any) -> DecoderConfig:
    """What the weights do not show; raises `UnsupportedModel` where the decoder would compute something else."""
    config = network.config.get_text_config()
    head_width = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    parameters = dict(network.named_parameters())
    _check_names(parameters.keys(), config.num_hidden_layers)
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
        rotation_scale=float(rotary.attention_scaling),
        epsilon=config.rms_norm_eps if hasattr(config, "rms_norm_eps") else config.norm_epsilon,
        max_positions=config.max_position_embeddings,
        windows=layer_windows(config),
    )


def _check_names(names: Set[str], layers: int) -> None:
    """Raise `UnsupportedModel` unless the parameters are those of a decoder with so many layers."""
    required = {f"{_EMBEDDING}.weight", f"{_NORM}.weight"}
    optional = {f"{_HEAD}.weight", f"{_NORM}.bias"}  # no head where it is tied to the embedding
    for prefix in (f"model.layers.{number}." for number in range(layers)):
        mlp = _PLAIN_MLP if f"{prefix}{_PLAIN_MLP[0]}.weight" in names else _GATED_MLP
        required |= {f"{prefix}{name}.weight" for name in (*_LAYER, *mlp)}
        optional |= {f"{prefix}{name}.bias" for name in (*_LAYER, *mlp)}
        optional |= {f"{prefix}{name}.weight" for name in _HEAD_NORMS}
    for name in sorted(required - names or names - required - optional)[:1]:
        raise UnsupportedModel(f"it has {'no' if name in required else 'a'} parameter {name}")


class _Weights:
    """A network's parameters as tensors, which become views of the fused ones."""

    def __init__(self, network: Any, epsilon: float) -> None:
        """`epsilon` is that of the norms."""
        self.find = dict(network.named_parameters()).get
        self.epsilon = epsilon

    def get(self, name: str) -> Any:
        """A weight that must be there."""
        weight = self.find(f"{name}.weight")
        if weight is None:
            raise UnsupportedModel(f"it has no parameter {name}.weight")
        return weight

    def norm(self, name: str) -> Norm:
        """A normalisation; one with a bias is around the mean."""
        bias = self.find(f"{name}.bias")
        return Norm(self.get(name).data, None if bias is None else bias.data, self.epsilon)

    def fuse(self, *names: str) -> Affine:
        """Linears that read the same input, as one; a single one is not copied."""
        parameters = [self.get(name) for name in names]
        biases = [bias.data for name in names if (bias := self.find(f"{name}.bias")) is not None]
        if len(biases) not in (0, len(names)):
            raise UnsupportedModel("some of its linears have biases")
        if len(names) == 1:
            return Affine(parameters[0].data, biases[0] if biases else None)
        weight = torch.cat([parameter.data for parameter in parameters])
        start = 0
        for parameter in parameters:
            parameter.data = weight[start : start + len(parameter)]
            start += len(parameter)
        return Affine(weight, torch.cat(biases) if biases else None)

    def layer(self, number: int) -> Layer:
        """The parts of one block."""
        prefix = f"model.layers.{number}."
        query_norm, key_norm = (
            None if self.find(f"{prefix}{name}.weight") is None else self.norm(prefix + name)
            for name in _HEAD_NORMS
        )
        has_gate = self.find(f"{prefix}{_GATED_MLP[0]}.weight") is not None
        *up, down = (prefix + name for name in (_GATED_MLP if has_gate else _PLAIN_MLP))
        return Layer(
            attention_norm=self.norm(f"{prefix}input_layernorm"),
            queries_keys_values=self.fuse(*(f"{prefix}self_attn.{name}_proj" for name in "qkv")),
            query_norm=query_norm,
            key_norm=key_norm,
            attention_out=self.fuse(f"{prefix}self_attn.o_proj"),
            mlp_norm=self.norm(f"{prefix}post_attention_layernorm"),
            up=self.fuse(*up),
            activate=gated_silu if has_gate else gelu,
            down=self.fuse(down),
        )
