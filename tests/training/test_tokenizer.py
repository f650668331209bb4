"""A trimmed vocabulary cuts text where the old one does, loses none, and never takes code for a special token."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from spd_lsp.training.tokenizer import SPECIAL, count_tokens, select_merges, trim_tokenizer

MARKS = {"<|end|>": "<|old|>", "<|gap|>": "<|other|>"}
PIECES = st.sampled_from(["\n", "\r\n", "    ", "\t", "x", "été", "_", "1234", "<|endoftext|>", "😀", "\x00"])


def test_the_rarest_token_that_no_other_is_made_of_goes_first() -> None:
    merges = [("a", "b"), ("ab", "c"), ("d", "e"), ("ab", "d")]
    counts = {"ab": 0, "abc": 9, "de": 5, "abd": 4}
    assert select_merges(merges, counts, 3) == [("a", "b"), ("ab", "c"), ("d", "e")]
    assert select_merges(merges, counts, 2) == [("a", "b"), ("ab", "c")], "ab stays, rare as it is"
    rarer = {"ab": 0, "abc": 1, "de": 3, "abd": 2}
    assert select_merges(merges, rarer, 2) == [("a", "b"), ("d", "e")], "where abc and abd stood, ab stands"


def test_every_token_is_reached_by_its_own_merges(old: Tokenizer, sources: list[str]) -> None:
    trimmed, origins = trim_tokenizer(old, MARKS, count_tokens(old, sources), 500)
    names = sorted(trimmed.get_vocab().items(), key=lambda item: item[1])
    assert len(names) == len(origins) == 500
    assert all([token.id for token in trimmed.model.tokenize(name)] == [i] for name, i in names[len(MARKS) :])
    assert origins[:2] == ["<|old|>", "<|other|>"]
    assert all(origin in (name, None) for (name, _), origin in zip(names[2:], origins[2:], strict=True))
    before, after = old.encode(sources[0]), trimmed.encode(sources[0])
    assert {end for _, end in before.offsets} < {end for _, end in after.offsets}


@given(text=st.one_of(st.text(), st.lists(PIECES).map("".join)))
def test_any_text_survives_without_special_tokens(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert min(ids, default=len(SPECIAL)) >= len(SPECIAL)
