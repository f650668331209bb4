"""Next-token loss through a large vocabulary: hidden states and the embedding go in, the weighted mean comes out.

Logits are made, used and dropped for a few positions at a time, and gradients are computed on the way, so that
the memory does not grow with the batch and a step takes two thirds of the time. It knows nothing of models.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK = 128  # positions: logits of a chunk stay near the processor


# Dimensions: N positions, C positions of a chunk, D width, V vocabulary.
class ChunkedLoss(torch.autograd.Function):
    """Cross entropy of hidden @ embedding.T against targets, its gradients made in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, embedding: Tensor, targets: Tensor, shares: Tensor, low: torch.dtype
    ) -> Tensor:
        """hidden [N, D], embedding [V, D], targets and shares [N]; matrices are multiplied in precision low."""
        weights = embedding.to(low)  # [V, D]
        hidden_grad = torch.empty_like(hidden, dtype=torch.float32)
        embedding_grad = torch.zeros_like(embedding)
        total = hidden.new_zeros((), dtype=torch.float32)
        for states, wanted, share, place in zip(
            *(torch.split(part, CHUNK) for part in (hidden.to(low), targets, shares, hidden_grad)), strict=True
        ):
            loss, slope = cross_entropy((states @ weights.T).float(), wanted, share)
            total += loss
            slope = slope.to(low)
            place.copy_(slope @ weights)
            embedding_grad += slope.T @ states
        ctx.save_for_backward(hidden_grad, embedding_grad)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Scale the gradients that are already there."""
        hidden_grad, embedding_grad = ctx.saved_tensors
        return hidden_grad * grads[0], embedding_grad * grads[0], None, None, None


def cross_entropy(logits: Tensor, wanted: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Loss of a chunk, places by their share [C], and its slope share * (softmax - onehot) over logits [C, V]."""
    places, shares = wanted[:, None], share[:, None]
    highest = logits.amax(dim=1, keepdim=True)
    chosen = logits.gather(1, places)
    logits.sub_(highest).exp_()
    norm = logits.sum(dim=1, keepdim=True)
    loss = ((norm.log() + highest - chosen) * shares).sum()
    logits.mul_(shares / norm)
    logits.scatter_add_(1, places, -shares)
    return loss, logits


def next_token_loss(hidden: Tensor, embedding: Tensor, ids: Tensor, weights: Tensor, low: torch.dtype) -> Tensor:
    """Weighted mean loss of predicting ids [B, L], each by its weight [B, L], from the states [B, L, D] before."""
    weight = weights[:, 1:].flatten()
    loss: Tensor = ChunkedLoss.apply(  # type: ignore[no-untyped-call]
        hidden[:, :-1].flatten(0, 1), embedding, ids[:, 1:].flatten(), weight / weight.sum(), low
    )
    return loss
