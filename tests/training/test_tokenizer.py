"""Any text survives encoding; only the recipe adds special tokens; merges respect the structure of code."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from spd_lsp.training.tokenizer import SPECIAL, learn_tokenizer

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


def test_transformers_reads_the_same_ids_and_the_special_tokens(
    tokenizer: Tokenizer, tokenizer_folder: Path
) -> None:
    read = AutoTokenizer.from_pretrained(tokenizer_folder)
    text = "def f(x):\n    return x  # \u00e9\n"
    assert read(text)["input_ids"] == tokenizer.encode(text).ids
    assert read.decode(read(text)["input_ids"]) == text
    assert read("<|suffix|>a<|prefix|>")["input_ids"][:1] == [1]
    assert (read.eos_token_id, read.pad_token_id) == (0, 4)
