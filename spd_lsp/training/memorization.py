"""Measure what an exported model repeats of its training text, word for word.

In: the training rows and a model. Out: how long the copies are. The model continues text from random places of the
rows greedily (Carlini et al., "Quantifying Memorization Across Neural Language Models", ICLR 2023, section 3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from ngram_builders.arrays import U16, U64, Bools

PROMPT = 50  # tokens
SHORTEST_COPY = 50  # tokens that count as a copy, as in the paper
_CONTINUATION = 200  # tokens
_BATCH = 20  # prompts
_CHUNK = 2_000  # rows whose hashes are in memory at once
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no token is lost modulo 2^64


@dataclass(frozen=True, slots=True)
class Memorization:
    """Copies in the continuations of some prompts."""

    prompts: int
    continued: int  # prompts after which the first tokens are those of the training text
    copies: tuple[int, ...]  # tokens of each continuation's longest copy of any training text, if long enough


def measure_memorization(
    model: LlamaForCausalLM, rows: U16, prompts: int, seed: int, distinct: int = 10
) -> Memorization:
    """Continue prompts drawn from the rows [N, L]; copies of fewer than `distinct` tokens are not counted.

    Those are tables of numbers and lines of one sign, which say nothing of anybody's text.
    """
    rng = np.random.default_rng(seed)
    row = rng.integers(len(rows), size=prompts)
    place = rng.integers(rows.shape[1] - PROMPT - SHORTEST_COPY, size=prompts)
    passages = np.stack([rows[r, p : p + PROMPT + SHORTEST_COPY] for r, p in zip(row, place, strict=True)])
    written = np.concatenate(
        [_continue(model, passages[start : start + _BATCH, :PROMPT]) for start in range(0, prompts, _BATCH)]
    )  # [P, G]
    known = _windows_in(rows, window_hashes(written))  # [P, G - 49]
    varied = np.array([[len(set(window)) >= distinct for window in _windows(text)] for text in written.tolist()])
    continued = (written[:, :SHORTEST_COPY] == passages[:, PROMPT:]).all(axis=1) & varied[:, 0]
    runs = [_longest_run(hits) for hits in known & varied]
    return Memorization(prompts, int(continued.sum()), tuple(SHORTEST_COPY - 1 + run for run in runs if run))


def window_hashes(ids: U16) -> U64:
    """Hash every SHORTEST_COPY tokens in a row, by the hashes of halves: [N, L] -> [N, L - 49]."""
    hashes = ids.astype(np.uint64)
    width = 1
    while width < SHORTEST_COPY:
        step = min(width, SHORTEST_COPY - width)  # the last two halves overlap
        hashes = _mix(hashes[:, :-step], hashes[:, step:])
        width = width + step
    return hashes


def _mix(left: U64, right: U64) -> U64:
    mixed: U64 = (left * _FACTOR + right) * _FACTOR
    mixed ^= mixed >> np.uint64(29)
    return mixed


def _windows_in(rows: U16, hashes: U64) -> Bools:
    known = np.unique(hashes)
    met = np.zeros(len(known), dtype=np.bool_)
    for start in range(0, len(rows), _CHUNK):
        met |= np.isin(known, window_hashes(rows[start : start + _CHUNK]))
    return np.isin(hashes, known[met])


def _windows(text: list[int]) -> Iterator[list[int]]:
    return (text[start : start + SHORTEST_COPY] for start in range(len(text) - SHORTEST_COPY + 1))


def _longest_run(hits: Bools) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], hits.astype(np.int8), [0]))))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def _continue(model: LlamaForCausalLM, prompts: U16) -> U16:
    """Return the most likely next tokens, one by one: [B, 50] -> [B, G]."""
    ids = torch.from_numpy(prompts.astype(np.int64))
    with torch.inference_mode():
        generating: Any = model  # its base class is not typed for this call
        output: Tensor = generating.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=_CONTINUATION,
            min_new_tokens=_CONTINUATION,
        )
    written: U16 = output[:, ids.shape[1] :].numpy().astype(np.uint16)
    return written
