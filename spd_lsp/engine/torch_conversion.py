"""The weights of a transformers model, laid out for the torch decoder, in the same memory.

Comes in: a network whose parameters have the names of a Llama. Goes out: a `TorchDecoder`. The network's own
parameters become rows of the fused matrices, one block after the other, so that nothing is stored twice.
"""

from __future__ import annotations

from typing import Any

import torch

from spd_lsp.engine.assembly import Unlike
from spd_lsp.engine.conversion import compare, shape_of
from spd_lsp.engine.torch_decoder import Affine, Layer, TorchDecoder


def convert(network: Any) -> TorchDecoder:
    """A decoder with this network's weights; raises `Unlike`, the network unchanged, if the shape is another."""
    config = network.config.get_text_config()
    compare(network, config)
    if len({(parameter.dtype, parameter.device) for parameter in network.parameters()}) > 1:
        raise Unlike("its weights differ in precision or device")
    shape = shape_of(network, config)
    if shape.windows:
        raise Unlike(f"its sliding_window is {config.sliding_window}")
    if not hasattr(network.model.layers[0].mlp, "gate_proj") or hasattr(network.model.norm, "bias"):
        raise Unlike("its layers have other parts than a Llama's")
    return TorchDecoder(
        embedding=network.get_input_embeddings().weight.data,
        layers=[layer(block) for block in network.model.layers],
        norm=network.model.norm.weight.data,
        head=fuse(network.get_output_embeddings()),
        query_heads=shape.query_heads,
        key_heads=shape.key_heads,
        head_width=shape.head_width,
        epsilon=shape.epsilon,
        frequencies=network.model.rotary_emb.inv_freq.float(),
        rotation_scale=shape.rotation_scale,
        max_positions=shape.max_positions,
    )


def layer(block: Any) -> Layer:
    """One block, its projections fused where they read the same input."""
    attention, mlp = block.self_attn, block.mlp
    query_norm, key_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
    return Layer(
        attention_norm=block.input_layernorm.weight.data,
        queries_keys_values=fuse(attention.q_proj, attention.k_proj, attention.v_proj),
        query_norm=None if query_norm is None else query_norm.weight.data,
        key_norm=None if key_norm is None else key_norm.weight.data,
        attention_out=fuse(attention.o_proj),
        mlp_norm=block.post_attention_layernorm.weight.data,
        gate_up=fuse(mlp.gate_proj, mlp.up_proj),
        down=fuse(mlp.down_proj),
    )


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
