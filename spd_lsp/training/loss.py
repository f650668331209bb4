"""Next-token loss with a large vocabulary, from hidden states and the embedding.

Logits are computed and dropped for a few positions at a time, and gradients are computed at once, so that memory
does not grow with the batch and a step takes two thirds of the time. It knows nothing of models.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK = 128  # positions: the logits of a chunk fit into the cache


# Dimensions: N positions, C positions of a chunk, D width, V vocabulary.
class ChunkedLoss(torch.autograd.Function):
    """Cross entropy of hidden @ embedding.T against targets, with gradients computed in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, embedding: Tensor, targets: Tensor, shares: Tensor, low: torch.dtype
    ) -> Tensor:
        """hidden [N, D], embedding [V, D], targets and shares [N]; matrices are multiplied in precision low."""
        weights = embedding.to(low)  # [V, D]
        hidden_grad = torch.empty_like(hidden, dtype=torch.float32)
        embedding_grad = torch.zeros_like(embedding, dtype=torch.float32)
        total = hidden.new_zeros((), dtype=torch.float32)
        for states, chunk_targets, share, gradient in zip(
            *(torch.split(tensor, CHUNK) for tensor in (hidden.to(low), targets, shares, hidden_grad)), strict=True
        ):
            loss, logits_grad = cross_entropy((states @ weights.T).float(), chunk_targets, share)
            total += loss
            logits_grad = logits_grad.to(low)
            gradient.copy_(logits_grad @ weights)
            embedding_grad += logits_grad.T @ states
        ctx.save_for_backward(hidden_grad, embedding_grad)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Scale the gradients of the forward pass."""
        hidden_grad, embedding_grad = ctx.saved_tensors
        return hidden_grad * grads[0], embedding_grad * grads[0], None, None, None


def cross_entropy(logits: Tensor, targets: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of a chunk, weighted by shares [C], and its gradient share * (softmax - onehot), [C, V]."""
    columns, shares = targets[:, None], share[:, None]
    highest = logits.amax(dim=1, keepdim=True)
    chosen = logits.gather(1, columns)
    logits.sub_(highest).exp_()
    norm = logits.sum(dim=1, keepdim=True)
    loss = ((norm.log() + highest - chosen) * shares).sum()
    logits.mul_(shares / norm)
    logits.scatter_add_(1, columns, -shares)
    return loss, logits


def next_token_loss(hidden: Tensor, embedding: Tensor, ids: Tensor, weights: Tensor, low: torch.dtype) -> Tensor:
    """Return the mean loss, by weights [B, L], of predicting ids [B, L] from the preceding states [B, L, D]."""
    weight = weights[:, 1:].flatten()
    loss: Tensor = ChunkedLoss.apply(  # type: ignore[no-untyped-call]
        hidden[:, :-1].flatten(0, 1), embedding, ids[:, 1:].flatten(), weight / weight.sum(), low
    )
    return loss
