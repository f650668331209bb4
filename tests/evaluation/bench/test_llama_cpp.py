"""llama.cpp's own rows, beside which the engine is timed, continue a prompt greedily."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.evaluation.bench.llama_cpp import LlamaCpp, top_tokens
from spd_lsp.models.llama import library
from spd_lsp.models.llama.library import Unavailable
from spd_lsp.models.load import load
from tests.conftest import STARTER, STARTER_FILE

PROMPT = (5, 3, 8, 1, 13, 21, 34, 2)


def test_every_row_predicts_what_the_engine_does():
    engine, found = load(STARTER, "cpu"), LlamaCpp(STARTER_FILE, rows=3, positions=20, threads=1)
    np.testing.assert_allclose(found.prefill(PROMPT, 3), engine.prefill(PROMPT), atol=0.05)
    for token, row in zip([7, 9, 11], found.step(np.array([7, 9, 11]), len(PROMPT)), strict=True):
        np.testing.assert_allclose(row, engine.prefill([*PROMPT, token]), atol=0.2)


def test_drafts_are_greedy_continuations_and_a_second_time_the_same():
    engine, found = load(STARTER, "cpu"), LlamaCpp(STARTER_FILE, rows=2, positions=20, threads=1)
    drafts = found.drafts(PROMPT, 2, 4, lambda: None)
    assert drafts[:, 0].tolist() == top_tokens(engine.prefill(PROMPT), 2).tolist()
    for draft in drafts.tolist():
        assert draft[1:] == [int(engine.prefill([*PROMPT, *draft[:n]]).argmax()) for n in range(1, 4)]
    assert found.drafts(PROMPT, 2, 4, lambda: None).tolist() == drafts.tolist()


def test_a_library_whose_settings_lie_elsewhere_is_not_used(monkeypatch):
    monkeypatch.setattr(library, "_DEFAULT_CONTEXT_SIZES", (1, 2, 3, 4))
    with pytest.raises(Unavailable, match="unknown layout"):
        LlamaCpp(STARTER_FILE, rows=1, positions=16, threads=1)


def test_the_likeliest_come_best_first():
    assert top_tokens(np.array([0.1, 0.5, 0.3, 0.9, 0.0]), 3).tolist() == [3, 1, 2]
