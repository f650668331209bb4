"""Drafts of a fixed length, and how likely they are."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.paper.drafting import (
    METHODS,
    PAPER,
    REAL_TEXT,
    DraftWriter,
    Method,
    matched_tokens,
    mixtures_by_repository,
    nats,
)
from spd_lsp.evaluation.paper.passages import Passage, RepositorySplit
from spd_lsp.evaluation.paper.perplexity import measure, summarise
from spd_lsp.models.load import load
from spd_lsp.models.logits import log_softmax
from tests.conftest import STARTER

CODE = (
    "def total(order, tax):\n    return order.sum + tax\n\n\ndef rebate(order, tax):\n    return order.sum - tax\n"
)


@pytest.fixture(scope="module")
def tokens() -> ModelTokenizer:
    return ModelTokenizer(STARTER)


@pytest.fixture(scope="module")
def passages(tokens: ModelTokenizer) -> list[Passage]:
    ids = tuple(tokens.encode(CODE * 4))
    return [Passage("shop", "order.py", ids, at) for at in (40, 60)]


@pytest.fixture(scope="module")
def writer(tokens: ModelTokenizer, passages: list[Passage]) -> DraftWriter:
    from ngram_builders.ngrams import with_boundaries

    split = RepositorySplit("shop", passages, [with_boundaries(tokens.encode(CODE), tokens.end_of_text)])
    return DraftWriter(load(STARTER, "cpu"), tokens, mixtures_by_repository([split], tokens.vocab_size))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_drafts_have_the_length_asked_for(method: Method, writer: DraftWriter, passages: list[Passage]) -> None:
    found = writer.write(method, passages[0], k=3, prefix=32, tokens=4)
    assert {len(draft.ids) for draft in found.best} == {4}
    assert len(found.best) == (1 if method.decoder == "greedy" else 3)
    assert found.passes == 4


def test_the_paper_asks_at_its_own_numbers() -> None:
    assert (PAPER.alpha, PAPER.temperature, PAPER.interpolation) == (0.54, 0.06, "paper")


def test_matched_counts_up_to_the_first_mistake() -> None:
    assert matched_tokens([5, 7, 9], [5, 7, 8]) == 2
    assert matched_tokens([5, 7], [5, 7, 8]) == 2
    assert matched_tokens([1], [5]) == 0


def test_each_draft_is_judged_after_the_same_prefix(writer: DraftWriter, passages: list[Passage]) -> None:
    read, truth = passages[0].prefix(32), passages[0].continuation(5)
    alone = nats(writer.model, read, [truth])[0]
    among = nats(writer.model, read, [[5, 6, 7], truth])[1]
    model = load(STARTER, "cpu")
    log_p = log_softmax(model.forward_ids([[*read, *truth]], model.new_cache())[0])[-6:-1]
    likely = log_p[np.arange(5), list(truth)]
    assert alone == pytest.approx(-likely, abs=0.1)  # read in other pieces, rounded to 8 bits otherwise
    assert among == pytest.approx(alone, abs=1e-3)


def test_all_ways_are_judged_and_reported(writer: DraftWriter, passages: list[Passage]) -> None:
    measured = [measure(writer, passage, k=2, prefix=32, tokens=4) for passage in passages]
    report = summarise(measured, [("shop", "a"), ("shop", "b")], {"model": "starter"}, 2)
    assert {method.name for method in METHODS} | {REAL_TEXT} == set(measured[0])
    beam, greedy = report.data["beam"], report.data["greedy"]
    assert beam[0].mean <= greedy[0].mean + 1e-6  # beams of two or more find no worse
    assert np.isnan(greedy[1].mean)  # it writes one draft
    assert "one nucleus sample" in report.markdown()
