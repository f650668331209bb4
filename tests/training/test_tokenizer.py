"""Any text survives encoding; only the recipe adds special tokens; merges respect the structure of code."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from spd_lsp.training.tokenizer import (
    MERGES,
    SPECIAL,
    learn_tokenizer,
    learn_word_merges,
    merges_kind,
    whole_word_ids,
)

PIECES = st.sampled_from(
    ["\n", "\r\n", "    ", "\t", " ", "x", "été", "_", "1234", "<|endoftext|>", "😀", "'", "\x00"]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES).map("".join))


@given(text=TEXTS)
def test_any_text_survives_encoding_and_decoding(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


@given(text=TEXTS)
def test_no_text_encodes_to_a_special_token(tokenizer: Tokenizer, text: str) -> None:
    assert min(tokenizer.encode(text).ids, default=len(SPECIAL)) >= len(SPECIAL)


@given(text=TEXTS)
def test_no_token_holds_anything_but_blanks_before_or_after_a_newline(tokenizer: Tokenizer, text: str) -> None:
    """So that a completion can end at a line's end, and the next line's indentation is one decision."""
    for start, end in tokenizer.encode(text).offsets:
        if "\n" in text[start:end]:
            assert not text[start:end].strip(" \t\r\n")


def test_a_newline_and_its_indentation_are_one_token(tokenizer: Tokenizer) -> None:
    assert "Ċ" + "Ġ" * 8 in tokenizer.encode("if x:\n        return").tokens


def test_special_tokens_have_the_first_ids(tokenizer: Tokenizer) -> None:
    assert [tokenizer.token_to_id(token) for token in SPECIAL] == list(range(len(SPECIAL)))
    assert SPECIAL[0] == "<|endoftext|>"


def test_the_same_texts_give_the_same_tokenizer(sources: list[str]) -> None:
    assert learn_tokenizer(sources, 300).to_str() == learn_tokenizer(sources, 300).to_str()


@pytest.fixture(scope="module")
def joining(sources: list[str]) -> Tokenizer:
    """A tokenizer whose merges go across the blanks of a line."""
    tokenizer = learn_tokenizer(sources, 1_200, "lines")
    tokenizer.encode_special_tokens = True
    return tokenizer


@given(text=TEXTS)
def test_with_merges_across_blanks_any_text_survives_and_no_token_spans_a_line_end(
    joining: Tokenizer, text: str
) -> None:
    encoding = joining.encode(text)
    assert joining.decode(encoding.ids, skip_special_tokens=False) == text
    for start, end in encoding.offsets:
        if "\n" in text[start:end]:
            assert not text[start:end].strip(" \t\r\n")


def test_merges_across_blanks_join_words_and_never_numbers(joining: Tokenizer) -> None:
    assert joining.get_vocab_size() == 1_200
    texts = [joining.decode([place]) for place in joining.get_vocab().values()]
    assert any(" " in text.strip() for text in texts)
    assert not any(text[0].isnumeric() and len(text) > 3 for text in texts if text)
    assert len(joining.encode("12345").ids) == len(joining.encode("123").ids) + len(joining.encode("45").ids)


def test_joined_tokens_are_made_of_whole_words(sources: list[str], joining: Tokenizer) -> None:
    """The second round begins with the tokens of the first and adds nothing that begins inside a word."""
    words = learn_word_merges(sources, 900)
    whole = {words.id_to_token(place) for place in whole_word_ids(words)}
    assert all(joining.token_to_id(token) == place for token, place in words.get_vocab().items())
    for token in joining.get_vocab().keys() - words.get_vocab().keys():
        pieces = [token[a:b] for a, b in zip([0, *cuts(token)], [*cuts(token), len(token)], strict=True)]
        assert len(pieces) > 1
        assert whole.issuperset(pieces)


def cuts(token: str) -> list[int]:
    """Where a joined token goes from one word or run of punctuation to the next."""
    return [
        place
        for place in range(1, len(token))
        if token[place] == "Ġ"
        or (wordlike(token[place]) != wordlike(token[place - 1]) and token[place - 1] != "Ġ")
    ]


def wordlike(sign: str) -> bool:
    return sign.isalnum() or sign == "_"


@pytest.mark.parametrize("merges", MERGES)
def test_a_tokenizer_records_what_its_merges_stay_within(sources: list[str], merges: str) -> None:
    assert merges_kind(learn_tokenizer(sources, 400, merges)) == merges
    assert learn_tokenizer(sources, 400, merges).to_str() == learn_tokenizer(sources, 400, merges).to_str()


def test_transformers_reads_the_same_ids_and_the_special_tokens(
    tokenizer: Tokenizer, tokenizer_folder: Path
) -> None:
    read = AutoTokenizer.from_pretrained(tokenizer_folder)
    text = "def f(x):\n    return x  # \u00e9\n"
    assert read(text)["input_ids"] == tokenizer.encode(text).ids
    assert read.decode(read(text)["input_ids"]) == text
    assert read("<|suffix|>a<|prefix|>")["input_ids"][:1] == [1]
    assert (read.eos_token_id, read.pad_token_id) == (0, 4)
