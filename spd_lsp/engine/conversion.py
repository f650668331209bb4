"""The weights of a transformers model, laid out for the NumPy decoder, in the same memory.

Comes in: a network whose parameters have the names of a Llama. Goes out: a `Decoder`. The network's own parameters
become views of the fused matrices, so that both can run and nothing is stored twice. What a network computes with
its parameters is not looked at here: a self-test compares the two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from spd_lsp.engine.linears import Dense
from spd_lsp.engine.numpy_decoder import Decoder, Layer

Floats = npt.NDArray[np.floating[Any]]

# Parameters of a model and of each of its layers: those it must have and those it may have.
NEEDED = ("embed_tokens", "norm")
NEEDED_IN_LAYER = (
    *("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    *("post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
)
NORMS_OF_HEADS = ("self_attn.q_norm", "self_attn.k_norm")
PLAIN_ROTATIONS = {"default", "linear", "llama3", "yarn"}  # the angles of others change with the text's length


class Unlike(Exception):
    """The model is not of the shape that the NumPy decoder computes; says in what."""


def convert(network: Any) -> Decoder:
    """A decoder with this network's weights; raises `Unlike`, the network unchanged, if the shape is another."""
    config = network.config.get_text_config()
    compare(network, config)
    rotary = network.model.rotary_emb
    heads = config.num_attention_heads
    head = fuse(network.get_output_embeddings())  # first: it may be the embedding too
    return Decoder(
        embedding=numbers(network.get_input_embeddings().weight),
        layers=[layer(block) for block in network.model.layers],
        norm=numbers(network.model.norm.weight),
        head=head,
        query_heads=heads,
        key_heads=config.num_key_value_heads,
        head_width=head_width(config),
        epsilon=config.rms_norm_eps,
        frequencies=numbers(rotary.inv_freq),
        rotation_scale=float(rotary.attention_scaling),
        max_positions=config.max_position_embeddings,
    )


def compare(network: Any, config: Any) -> None:
    """Raise `Unlike` where parameters, or settings that a short probe cannot show, differ from the decoder's."""
    found = dict(network.named_parameters())
    needed, allowed = parameter_names(config.num_hidden_layers)
    for name in sorted(needed - found.keys() or found.keys() - needed - allowed)[:1]:
        raise Unlike(f"it has {'no' if name in needed else 'a'} parameter {name}")
    for name, parameter in found.items():
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            raise Unlike(f"its weights are {parameter.dtype} on {parameter.device}")
        if name.endswith(("q_norm.weight", "k_norm.weight")) and len(parameter) != head_width(config):
            raise Unlike("it normalises all heads as one")
    for limit in ("sliding_window", "attention_chunk_size"):
        if (getattr(config, limit, None) or config.max_position_embeddings) < config.max_position_embeddings:
            raise Unlike(f"its {limit} is {getattr(config, limit)}")
    rotary = getattr(network.model, "rotary_emb", None)
    if rotary is None or getattr(rotary, "rope_type", None) not in PLAIN_ROTATIONS:
        raise Unlike("its positions turn in another way")
    if 2 * len(rotary.inv_freq) != head_width(config):
        raise Unlike("it turns a part of each head")


def parameter_names(layers: int) -> tuple[set[str], set[str]]:
    """What a model of so many layers must have, and what it may have besides."""
    needed = {f"model.{name}.weight" for name in NEEDED}
    allowed = {"lm_head.weight"}  # not there where it is the embedding
    for place in (f"model.layers.{number}." for number in range(layers)):
        needed |= {f"{place}{name}.weight" for name in NEEDED_IN_LAYER}
        allowed |= {f"{place}{name}.bias" for name in NEEDED_IN_LAYER if name.endswith("_proj")}
        allowed |= {f"{place}{name}.weight" for name in NORMS_OF_HEADS}
    return needed, allowed


def head_width(config: Any) -> int:
    """C, which some models choose freely."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def layer(block: Any) -> Layer:
    """One block, its projections fused where they read the same input."""
    attention, mlp = block.self_attn, block.mlp
    query_norm, key_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
    return Layer(
        attention_norm=numbers(block.input_layernorm.weight),
        queries_keys_values=fuse(attention.q_proj, attention.k_proj, attention.v_proj),
        query_norm=None if query_norm is None else numbers(query_norm.weight),
        key_norm=None if key_norm is None else numbers(key_norm.weight),
        attention_out=fuse(attention.o_proj),
        mlp_norm=numbers(block.post_attention_layernorm.weight),
        gate_up=fuse(mlp.gate_proj, mlp.up_proj),
        down=fuse(mlp.down_proj),
    )


def fuse(*linears: Any) -> Dense:
    """Several linears that read the same input as one, [I, O]; their own weights become views of it."""
    sizes = [linear.weight.shape[0] for linear in linears]
    weight: Floats = np.empty((linears[0].weight.shape[1], sum(sizes)), np.float32)
    for linear, end in zip(linears, np.cumsum(sizes).tolist(), strict=True):
        columns = weight[:, end - linear.weight.shape[0] : end]
        columns[:] = numbers(linear.weight).T
        linear.weight.data = torch.from_numpy(columns).T
    biases = [numbers(linear.bias) for linear in linears if linear.bias is not None]
    return Dense(weight, np.concatenate(biases) if biases else None)


def numbers(tensor: torch.Tensor) -> Floats:
    """A tensor's memory as an array."""
    found: Floats = tensor.detach().numpy()
    return found
