"""Measure how well a model predicts held-out code, in nats per token and bits per byte.

Rows mark which of their tokens are measured: all of a plain row, only the middle of a document with a gap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import LlamaForCausalLM

from spd_lsp.training.tokenizer import SPECIAL

KINDS = ("plain", "gaps")  # the held-out rows, by file name


@dataclass(frozen=True, slots=True)
class HeldOutLoss:
    """The total loss over some tokens, and their size in bytes."""

    nats: float
    tokens: int
    bytes: int

    @property
    def nats_per_token(self) -> float:
        """Return the mean loss per token."""
        return self.nats / self.tokens

    @property
    def bits_per_byte(self) -> float:
        """Return the mean loss per byte of source. Example: 2.77 nats for 4 bytes are 1 bit per byte."""
        return self.nats / math.log(2) / self.bytes


def bytes_per_token(tokenizer: Tokenizer) -> npt.NDArray[np.int64]:
    """Return the number of bytes of each token, [V]; 0 for special tokens."""
    width = np.zeros(tokenizer.get_vocab_size(), dtype=np.int64)
    for piece, token in tokenizer.get_vocab().items():
        width[token] = 0 if token < len(SPECIAL) else len(piece)  # one character of a piece is one byte
    return width


def measure_held_out(model: LlamaForCausalLM, folder: Path, kind: str, tokenizer: Tokenizer) -> HeldOutLoss:
    """Measure a model on the held-out rows of one kind."""
    ids, measured = (np.load(folder / f"{kind}.{part}.npy") for part in ("ids", "measured"))  # [N, L]
    width = bytes_per_token(tokenizer)
    nats = 0.0
    tokens = 0
    size = 0
    for losses, row, mask in zip(_token_losses(model, ids), ids, measured, strict=True):
        nats += float(losses[torch.from_numpy(mask[1:])].sum())
        tokens += int(mask[1:].sum())
        size += int(width[row[1:][mask[1:]]].sum())
    return HeldOutLoss(nats, tokens, size)


def _token_losses(model: LlamaForCausalLM, ids: npt.NDArray[np.uint16]) -> Iterator[Tensor]:
    """Yield the loss of every token but the first, [L - 1], row by row."""
    with torch.inference_mode():
        for row in ids:
            sequence = torch.from_numpy(row.astype(np.int64))[None]
            logits = model(input_ids=sequence, use_cache=False).logits[0, :-1].float()
            yield torch.nn.functional.cross_entropy(logits, sequence[0, 1:], reduction="none")
