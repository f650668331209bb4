"""Compute with the weights as they will be stored, learn in float32: steps are too small for few bits.

Passes run in bfloat16, with the matrices of the layers rounded to four bits: the model learns to do without the
rest (straight-through estimation: the gradient of the rounded weight is that of the weight).
"""

from __future__ import annotations

import copy
from typing import Generic, TypeVar

import torch
from torch import nn

from spd_lsp.training import four_bits

M = TypeVar("M", bound=nn.Module)


class LowCopy(Generic[M]):
    """A copy of a model as it will be stored, for passes."""

    def __init__(self, model: M) -> None:
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
                if ".layers." in name and own.ndim == 2:
                    four_bits.round_into(low, own)
                else:
                    low.copy_(own)
