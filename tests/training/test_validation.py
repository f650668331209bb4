"""A loss counts exactly the measured tokens, and bytes as they are in the file."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

from spd_lsp.training.validation import HeldOutLoss, bytes_per_token, measure_held_out


@given(text=st.text())
def test_the_token_widths_of_a_text_add_up_to_its_bytes(tokenizer: Tokenizer, text: str) -> None:
    assert bytes_per_token(tokenizer)[tokenizer.encode(text).ids].sum() == len(text.encode())


def test_only_the_measured_tokens_count(model: LlamaForCausalLM, tokenizer: Tokenizer, tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 320, size=(3, 20)).astype(np.uint16)
    counted = np.random.default_rng(1).random((3, 20)) < 0.4
    np.save(tmp_path / "gaps.ids.npy", ids)
    np.save(tmp_path / "gaps.measured.npy", counted)

    nats = tokens = size = 0.0
    for row, wanted in zip(ids, counted, strict=True):
        with torch.no_grad():
            logprobs = model(torch.from_numpy(row.astype(np.int64))[None]).logits[0].log_softmax(-1)
        for place in range(1, 20):
            if wanted[place]:
                nats -= float(logprobs[place - 1, int(row[place])])
                tokens += 1
                size += bytes_per_token(tokenizer)[row[place]]

    found = measure_held_out(model, tmp_path, "gaps", tokenizer)
    assert (found.tokens, found.bytes) == (tokens, size)
    assert found.nats == pytest.approx(nats, rel=1e-4)


def test_losses_are_reported_per_token_and_per_byte() -> None:
    loss = HeldOutLoss(nats=8 * math.log(2), tokens=4, bytes=16)
    assert loss.nats_per_token == pytest.approx(2 * math.log(2))
    assert loss.bits_per_byte == pytest.approx(0.5)
