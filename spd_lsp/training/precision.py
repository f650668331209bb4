"""Compute in bfloat16, learn in float32: steps are too small for the eight bits of a low weight."""

from __future__ import annotations

import copy
from typing import Generic, TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


class LowCopy(Generic[M]):
    """A copy of a model in low precision, for passes; without low precision it is the model."""

    def __init__(self, model: M, low: torch.dtype) -> None:
        self.master = model
        self.model = model if low == torch.float32 else copy.deepcopy(model).to(low)

    def move_gradients(self) -> None:
        """Add the copy's gradients to the model's, and clear them."""
        if self.model is not self.master:
            for own, low in zip(self.master.parameters(), self.model.parameters(), strict=True):
                if low.grad is not None:
                    own.grad = low.grad.float() if own.grad is None else own.grad.add_(low.grad)
                    low.grad = None

    def refresh(self) -> None:
        """Round the model's weights anew."""
        if self.model is not self.master:
            with torch.no_grad():
                for own, low in zip(self.master.parameters(), self.model.parameters(), strict=True):
                    low.copy_(own)
