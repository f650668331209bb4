"""Drafts of a fixed length, and judges."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.paper.drafting import (
    METHODS,
    PAPER,
    REAL_TEXT,
    DraftWriter,
    Judge,
    Method,
    matched_tokens,
    mixtures_by_repository,
    nats_with_ngrams,
)
from spd_lsp.evaluation.paper.passages import Passage, RepositorySplit
from spd_lsp.evaluation.paper.perplexity import measure, summarise
from spd_lsp.evaluation.report_writer import write
from spd_lsp.models.load import load
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


def letters(folder: Path) -> ModelTokenizer:
    """A tokenizer that knows bytes only."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    raw = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(sorted(alphabet))}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(["<|endoftext|>"])
    (folder / "tokenizer.json").write_text(raw.to_str())
    return ModelTokenizer(folder)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_drafts_have_the_length_asked_for(method: Method, writer: DraftWriter, passages: list[Passage]) -> None:
    found = writer.write(method, passages[0], k=3, prefix=32, tokens=4)
    assert {len(draft.ids) for draft in found.best} == {4}
    assert len(found.best) == (1 if method.decoder == "greedy" else 3)
    assert found.passes == 4


def test_the_paper_asks_at_its_own_numbers() -> None:
    assert (PAPER.alpha, PAPER.temperature, PAPER.interpolation) == (0.54, 0.06, "paper")


def test_a_judge_reads_each_draft_after_the_same_prefix(writer: DraftWriter, passages: list[Passage]) -> None:
    read, truth = passages[0].prefix(32), passages[0].continuation(5)
    judge = Judge(writer.model, writer.tokens, same_tokenizer=True)
    alone = judge.nats(writer.tokens, read, [truth])[0]
    among = judge.nats(writer.tokens, read, [[5, 6, 7], truth])[1]
    likely = load(STARTER, "cpu").token_probabilities([*read, *truth])[0, -5:]
    assert alone == pytest.approx(-np.log(likely), abs=0.1)  # read in other pieces, rounded to 8 bits otherwise
    assert among == pytest.approx(alone, abs=1e-3)


def test_another_tokenizer_reads_the_same_text(
    writer: DraftWriter, tokens: ModelTokenizer, tmp_path: Path
) -> None:
    other = letters(tmp_path)
    judge = Judge(writer.model, other, same_tokenizer=False)
    prefix, drafts = tokens.encode("x = pri"), [tokens.encode("nt(a)"), tokens.encode("ce + tax")]
    prompt, texts = judge.translate(tokens, prefix, drafts)
    read = [other.bytes_of([*prompt, *text]).decode() for text in texts]
    assert read == ["x = print(a)", "x = price + tax"]
    assert all(texts)


def test_a_judge_told_of_ngrams_is_less_surprised_by_what_they_know(
    writer: DraftWriter, passages: list[Passage]
) -> None:
    read, truth = passages[1].prefix(32), passages[1].continuation(6)
    nats = Judge(writer.model, writer.tokens, same_tokenizer=True).nats(writer.tokens, read, [truth])[0]
    informed = nats_with_ngrams(nats, writer.mixtures["shop"], read, truth)
    assert informed.mean() < nats.mean()
    assert np.array_equal(nats_with_ngrams(nats, None, read, truth), nats)


def test_matched_counts_up_to_the_first_mistake() -> None:
    assert matched_tokens([5, 7, 9], [5, 7, 8]) == 2
    assert matched_tokens([5, 7], [5, 7, 8]) == 2
    assert matched_tokens([1], [5]) == 0


def test_all_ways_are_judged_and_reported(writer: DraftWriter, passages: list[Passage], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    judge = Judge(writer.model, writer.tokens, same_tokenizer=True)
    measured = [measure(writer, judge, passage, k=2, prefix=32, tokens=4) for passage in passages]
    report = summarise(measured, [("shop", "a"), ("shop", "b")], {"model": "starter"}, 2)
    written = write(report, tmp_path)
    assert {method.name for method in METHODS} | {REAL_TEXT} == set(measured[0])
    tables = json.loads(written[1].read_text())["tables"]
    by_name = {row[0]: row for row in tables[2]["rows"]}
    assert by_name["beam"][1]["mean"] <= by_name["greedy"][1]["mean"] + 1e-6  # beams of two or more find no worse
    assert by_name["greedy"][2]["mean"] is None  # it writes one draft
    assert [path.suffix for path in written] == [".md", ".json", ".png"]
