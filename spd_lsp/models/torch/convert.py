"""The weights of a transformers model, laid out for the torch decoder, in the same memory.

Comes in: a network whose parameters have the names of a Llama or StarCoder2. Goes out: a `TorchDecoder`. The
network's own parameters become rows of the fused matrices, one block after the other: nothing is stored twice.
"""

from __future__ import annotations

from typing import Any

import torch

from spd_lsp.models.numpy.convert import compare, shape_of
from spd_lsp.models.numpy.weights import Unlike
from spd_lsp.models.torch.decoder import Affine, Layer, Norm, TorchDecoder, gated, gelu


def convert(network: Any) -> TorchDecoder:
    """A decoder with this network's weights; raises `Unlike`, the network unchanged, if the shape is another."""
    config = network.config.get_text_config()
    compare(network, config)
    if len({(parameter.dtype, parameter.device) for parameter in network.parameters()}) > 1:
        raise Unlike("its weights differ in precision or device")
    shape = shape_of(network, config)
    return TorchDecoder(
        embedding=network.get_input_embeddings().weight.data,
        layers=[layer(block, shape.epsilon) for block in network.model.layers],
        norm=norm(network.model.norm, shape.epsilon),
        head=fuse(network.get_output_embeddings()),
        query_heads=shape.query_heads,
        key_heads=shape.key_heads,
        head_width=shape.head_width,
        frequencies=network.model.rotary_emb.inv_freq.float(),
        rotation_scale=shape.rotation_scale,
        max_positions=shape.max_positions,
        windows=shape.windows,
    )


def layer(block: Any, epsilon: float) -> Layer:
    """One block, its projections fused where they read the same input."""
    attention, mlp = block.self_attn, block.mlp
    query_norm, key_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
    has_gate = hasattr(mlp, "gate_proj")
    return Layer(
        attention_norm=norm(block.input_layernorm, epsilon),
        queries_keys_values=fuse(attention.q_proj, attention.k_proj, attention.v_proj),
        query_norm=None if query_norm is None else norm(query_norm, epsilon),
        key_norm=None if key_norm is None else norm(key_norm, epsilon),
        attention_out=fuse(attention.o_proj),
        mlp_norm=norm(block.post_attention_layernorm, epsilon),
        up=fuse(mlp.gate_proj, mlp.up_proj) if has_gate else fuse(mlp.c_fc),
        activate=gated if has_gate else gelu,
        down=fuse(mlp.down_proj if has_gate else mlp.c_proj),
    )


def norm(part: Any, epsilon: float) -> Norm:
    """A normalisation."""
    bias = getattr(part, "bias", None)
    return Norm(part.weight.data, None if bias is None else bias.data, epsilon)


def fuse(*linears: Any) -> Affine:
    """Several linears that read the same input as one; their own weights become views of it."""
    if len(linears) == 1:
        [linear] = linears
        return Affine(linear.weight.data, None if linear.bias is None else linear.bias.data)
    weight = torch.cat([linear.weight.data for linear in linears])
    start = 0
    for linear in linears:
        linear.weight.data = weight[start : start + len(linear.weight)]
        start += len(linear.weight)
    biases = [linear.bias.data for linear in linears if linear.bias is not None]
    if len(biases) not in (0, len(linears)):
        raise Unlike("some of its linears have biases")
    return Affine(weight, torch.cat(biases) if biases else None)
