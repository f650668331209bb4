"""The weights of a transformers network, fused for the torch decoder, in the same memory.

The network's own parameters become rows of the fused matrices, one block after the other: nothing is stored twice.
"""

from __future__ import annotations

from typing import Any

import torch

from spd_lsp.models.numpy.convert import decoder_config
from spd_lsp.models.numpy.weights import EMBEDDING, NORM, UnsupportedModel, Weights
from spd_lsp.models.torch.decoder import Affine, Layer, Norm, TorchDecoder, gated_silu, gelu


def convert(network: Any) -> TorchDecoder:
    """A decoder with this network's weights; `UnsupportedModel`, and no change, for other architectures."""
    config = decoder_config(network)
    if len({(parameter.dtype, parameter.device) for parameter in network.parameters()}) > 1:
        raise UnsupportedModel("its weights differ in precision or device")
    weights = _TorchWeights(dict(network.named_parameters()).get, config.epsilon)
    return TorchDecoder(
        config=config,
        embedding=weights.get(EMBEDDING).data,
        layers=[Layer(**weights.layer_parts(n, gated_silu, gelu)) for n in range(len(network.model.layers))],
        norm=weights.norm(NORM),
        head=weights.fuse(weights.head),
        frequencies=network.model.rotary_emb.inv_freq.float(),
    )


class _TorchWeights(Weights):
    """Parameters as tensors, which become views of the fused ones."""

    def norm(self, name: str) -> Norm:
        """As in `Weights`."""
        bias = self.find(f"{name}.bias")
        return Norm(self.get(name).data, None if bias is None else bias.data, self.epsilon)

    def fuse(self, *names: str) -> Affine:
        """As in `Weights`; a single linear is not copied."""
        parameters = [self.get(name) for name in names]
        biases = [bias.data for bias in self.biases(names)]
        if len(names) == 1:
            return Affine(parameters[0].data, biases[0] if biases else None)
        weight = torch.cat([parameter.data for parameter in parameters])
        start = 0
        for parameter in parameters:
            parameter.data = weight[start : start + len(parameter)]
            start += len(parameter)
        return Affine(weight, torch.cat(biases) if biases else None)
