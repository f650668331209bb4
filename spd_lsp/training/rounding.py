"""Compute with weights rounded as in the file, learn in float32: steps are too small for few bits.

Passes run in bfloat16, with the matrices of the layers rounded to GGML's Q4_0: the model learns to do without
the rest (straight-through estimation: the gradient of the rounded weight is that of the weight). A block of Q4_0
is 32 weights, a float16 scale and four bits for each: weight = scale * (bits - 8). The scale makes the largest
weight -8. Better scales exist, but weights trained with this one do not need them.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

_BLOCK = 32
_BLOCKS_AT_ONCE = 1 << 14  # they fit into the processor's cache


def round_to_four_bits(values: Tensor) -> Tensor:
    """Return a matrix [N, 32 M] rounded to four bits."""
    rounded = torch.empty_like(values)
    parts = (torch.split(matrix.view(-1, _BLOCK), _BLOCKS_AT_ONCE) for matrix in (rounded, values))
    for into, blocks in zip(*parts, strict=True):
        extreme = blocks.gather(1, blocks.abs().argmax(dim=1, keepdim=True))  # [N, 1]
        scale = (extreme / -8).half().float()  # as it is stored
        steps = (blocks / torch.where(scale == 0, 1.0, scale)).round_().clamp_(-8, 7)
        into.copy_(steps.mul_(scale))
    return rounded


class LowCopy:
    """A copy of a model with rounded weights, for the passes."""

    def __init__(self, model: nn.Module) -> None:
        self.master = model
        self.model = copy.deepcopy(model).to(torch.bfloat16)
        self.refresh()

    def move_gradients(self) -> None:
        """Add the copy's gradients to the model's, and clear them."""
        for own, low in zip(self.master.parameters(), self.model.parameters(), strict=True):
            if low.grad is not None:
                own.grad = low.grad.float() if own.grad is None else own.grad.add_(low.grad)
                low.grad = None

    def refresh(self) -> None:
        """Round the model's weights anew."""
        with torch.no_grad():
            for (name, own), low in zip(self.master.named_parameters(), self.model.parameters(), strict=True):
                low.copy_(round_to_four_bits(own) if ".layers." in name and own.ndim == 2 else own)
