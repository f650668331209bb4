"""Counts are those of the texts, and joined tokens make unreachable what they do not begin."""

from __future__ import annotations

from pathlib import Path

from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.training.lengths import Lengths, is_reachable, measure_lengths, measure_reach
from spd_lsp.training.tokenizer import learn_tokenizer, save_tokenizer

CODE = "value = self.size\n" * 50


def tokens_of(folder: Path, merges: str) -> ModelTokenizer:
    save_tokenizer(learn_tokenizer([CODE], 400, merges), folder / merges, 48)
    return ModelTokenizer(folder / merges)


def test_bytes_lines_and_tokens_are_counted(tokenizer_folder: Path) -> None:
    tokens = ModelTokenizer(tokenizer_folder)
    found = measure_lengths(["x = 1\n\ny = 'é'\n"], tokens)
    assert found == Lengths(16, 2, len(tokens.encode("x = 1\n\ny = 'é'\n")))


def test_a_token_that_joins_words_makes_others_unreachable(tmp_path: Path) -> None:
    words, lines = (tokens_of(tmp_path, merges) for merges in ("words", "lines"))
    assert lines.count("value = self.size") < words.count("value = self.size")
    assert is_reachable("value = ", "other", words)
    assert is_reachable("value = ", "self.size", lines)
    assert not is_reachable("value = ", "other", lines)


def test_learnt_text_is_reachable(tmp_path: Path) -> None:
    for merges in ("words", "lines"):
        found = measure_reach([CODE], tokens_of(tmp_path, merges), 100)
        assert all(missed == 0 < places for missed, places in found.values())
