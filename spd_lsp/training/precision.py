"""Compute with the weights as they will be stored, learn in float32: steps are too small for few bits.

Passes run in bfloat16, if asked with the matrices of the layers rounded to four bits: the model learns to do
without the rest (straight-through estimation: the gradient of the rounded weight is that of the weight).
"""

from __future__ import annotations

import copy
from typing import Generic, TypeVar

import torch
from torch import nn

from spd_lsp.training import four_bits

M = TypeVar("M", bound=nn.Module)


class LowCopy(Generic[M]):
    """A copy of a model in low precision, for passes; in full precision it is the model."""

    def __init__(self, model: M, low: torch.dtype, *, bits: int = 0) -> None:
        self.master = model
        self.model = model if low == torch.float32 else copy.deepcopy(model).to(low)
        self._in_four_bits = {name for name, own in model.named_parameters() if bits and _is_in_layer(name, own)}
        self.refresh()

    def move_gradients(self) -> None:
        """Add the copy's gradients to the model's, and clear them."""
        if self.model is not self.master:
            for own, low in zip(self.master.parameters(), self.model.parameters(), strict=True):
                if low.grad is not None:
                    own.grad = low.grad.float() if own.grad is None else own.grad.add_(low.grad)
                    low.grad = None

    def refresh(self) -> None:
        """Round the model's weights anew."""
        if self.model is self.master:
            return
        with torch.no_grad():
            for (name, own), low in zip(self.master.named_parameters(), self.model.parameters(), strict=True):
                if name in self._in_four_bits:
                    four_bits.round_into(low, own)
                else:
                    low.copy_(own)


def _is_in_layer(name: str, weight: torch.Tensor) -> bool:
    return ".layers." in name and weight.ndim == 2
