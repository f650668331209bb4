"""A trimmed vocabulary cuts text where the old one does, and reaches each of its tokens."""

from __future__ import annotations

from collections import Counter

import pytest
from tokenizers import Tokenizer

from spd_lsp.training.trimming import count_tokens, select_merges, trim_tokenizer
from tests.training.base_files import byte_level_tokenizer

MARKS = {"<|end|>": "<|old|>", "<|gap|>": "<|other|>"}


@pytest.fixture(scope="module")
def old(sources: list[str]) -> Tokenizer:
    return byte_level_tokenizer(sources, 900)


@pytest.fixture(scope="module")
def counts(old: Tokenizer, sources: list[str]) -> Counter[str]:
    return count_tokens(old, sources)


def test_the_rarest_token_that_no_other_is_made_of_goes_first() -> None:
    merges = [("a", "b"), ("ab", "c"), ("d", "e"), ("ab", "d")]
    counts = {"ab": 0, "abc": 9, "de": 5, "abd": 4}
    assert select_merges(merges, counts, 3) == [("a", "b"), ("ab", "c"), ("d", "e")]
    assert select_merges(merges, counts, 2) == [("a", "b"), ("ab", "c")], (
        "ab stays, rare as it is: abc is made of it"
    )
    assert select_merges(merges, {"ab": 0, "abc": 1, "de": 3, "abd": 2}, 2) == [("a", "b"), ("d", "e")], (
        "where abc and abd stood, ab stands"
    )


def test_every_token_is_reached_by_its_own_merges(old: Tokenizer, counts: Counter[str]) -> None:
    trimmed, origins = trim_tokenizer(old, MARKS, counts, 500)
    names = sorted(trimmed.get_vocab().items(), key=lambda item: item[1])
    assert len(names) == len(origins) == 500
    assert all([token.id for token in trimmed.model.tokenize(name)] == [i] for name, i in names[len(MARKS) :])
    assert origins[:2] == ["<|old|>", "<|other|>"]
    assert all(origin in (name, None) for (name, _), origin in zip(names[2:], origins[2:], strict=True))


def test_a_text_has_the_same_joints_and_more(old: Tokenizer, counts: Counter[str], sources: list[str]) -> None:
    trimmed, _ = trim_tokenizer(old, MARKS, counts, 600)
    before, after = old.encode(sources[0]), trimmed.encode(sources[0])
    assert {end for _, end in before.offsets} < {end for _, end in after.offsets}
