"""The chunked loss is the ordinary one: same value, same gradients."""

from __future__ import annotations

import pytest
import torch

from spd_lsp.training.loss import CHUNK, next_token_loss


@pytest.mark.parametrize("length", [2, CHUNK + 1, 2 * CHUNK + 44])
def test_loss_and_gradients_equal_the_plain_computation(length: int) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(2, length, 8, requires_grad=True)
    embedding = torch.randn(30, 8, requires_grad=True)
    ids = torch.randint(0, 30, (2, length))

    weights = torch.rand(2, length) + 0.1

    logits = hidden[:, :-1] @ embedding.T
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    weight = weights[:, 1:].flatten()
    plain = (losses * weight).sum() / weight.sum()
    wanted = torch.autograd.grad(3 * plain, (hidden, embedding))
    chunked = next_token_loss(hidden, embedding, ids, weights, torch.float32)
    found = torch.autograd.grad(3 * chunked, (hidden, embedding))

    torch.testing.assert_close(chunked, plain)
    for gradient, reference in zip(found, wanted, strict=True):
        torch.testing.assert_close(gradient, reference)


def test_lower_precision_stays_close() -> None:
    torch.manual_seed(0)
    hidden, embedding = torch.randn(1, 40, 8), torch.randn(30, 8)
    ids, weights = torch.randint(0, 30, (1, 40)), torch.ones(1, 40)
    exact = next_token_loss(hidden, embedding, ids, weights, torch.float32)
    rough = next_token_loss(hidden, embedding, ids, weights, torch.bfloat16)
    torch.testing.assert_close(rough, exact, rtol=0.02, atol=0.0)
