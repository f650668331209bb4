"""Copies of training text are found, and only those."""

from __future__ import annotations

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from spd_lsp.training.memorization import PROMPT, SHORTEST_COPY, measure_memorization, window_hashes

LENGTH = 320


class Recites(LlamaForCausalLM):
    """Continues every prompt with what follows it in the rows, as a model that has learnt them by heart."""

    def __init__(self, config: LlamaConfig, rows: np.ndarray) -> None:
        super().__init__(config)
        self.text = rows.ravel().tolist()
        self.text *= 2  # a prompt near the end goes on at the beginning

    def generate(self, ids: torch.Tensor, max_new_tokens: int, **options: object) -> torch.Tensor:
        continued = [self._after(prompt, max_new_tokens) for prompt in ids.tolist()]
        return torch.cat([ids, torch.tensor(continued)], dim=1)

    def _after(self, prompt: list[int], count: int) -> list[int]:
        starts = (start for start in range(len(self.text)) if self.text[start : start + PROMPT] == prompt)
        end = next(starts) + PROMPT
        return self.text[end : end + count]


def random_rows(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(300, size=(6, LENGTH)).astype(np.uint16)


def test_a_model_that_recites_its_training_text_is_detected(model: LlamaForCausalLM) -> None:
    rows = random_rows(0)
    found = measure_memorization(Recites(model.config, rows), rows, 5, 0)
    assert found.prompts == found.continued == len(found.copies) == 5
    assert min(found.copies) >= SHORTEST_COPY


def test_a_model_that_has_learnt_nothing_copies_nothing(model: LlamaForCausalLM) -> None:
    found = measure_memorization(model, random_rows(0), 5, 0)
    assert (found.continued, found.copies) == (0, ())


def test_copies_of_few_different_tokens_do_not_count(model: LlamaForCausalLM) -> None:
    rows = (random_rows(0) % 3).astype(np.uint16)
    found = measure_memorization(Recites(model.config, rows), rows, 5, 0)
    assert (found.continued, found.copies) == (0, ())


def test_equal_windows_have_equal_hashes_and_others_differ() -> None:
    rows = random_rows(1)[:, :120]
    rows[1, 7 : 7 + SHORTEST_COPY] = rows[0, 30 : 30 + SHORTEST_COPY]
    hashes = window_hashes(rows)
    assert hashes.shape == (6, 120 - SHORTEST_COPY + 1)
    assert hashes[0, 30] == hashes[1, 7]
    assert len(np.unique(hashes)) == hashes.size - 1
