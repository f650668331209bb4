"""Blocked attention is attention: transformers' own gives the same."""

from __future__ import annotations

import pytest
import torch

from spd_lsp.training import attention
from spd_lsp.training.attention import BLOCKED
from tests.training.base_files import random_llama


@pytest.mark.parametrize("length", [1, 5, 8, 19])
def test_it_computes_what_the_usual_attention_does(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    monkeypatch.setattr(attention, "_BLOCK", 8)
    model, ids = random_llama(50), torch.randint(0, 50, (2, length))
    logits = []
    for kind in ("eager", BLOCKED):
        model.set_attn_implementation(kind)
        logits.append(model(input_ids=ids, use_cache=False).logits)
    torch.testing.assert_close(*logits, rtol=1e-4, atol=1e-4)
