"""Any text survives encoding, source code never becomes a special token, and transformers reads the same."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from spd_lsp.training.tokenizer import SPECIAL

PIECES = st.sampled_from(
    ["\n", "\r\n", "    ", "\t", " ", "x", "été", "_", "1234", "<|endoftext|>", "😀", "'", "\x00"]
)


@given(text=st.one_of(st.text(), st.lists(PIECES).map("".join)))
def test_any_text_survives_without_special_tokens(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert min(ids, default=len(SPECIAL)) >= len(SPECIAL)


def test_transformers_reads_the_same_ids_and_the_special_tokens(
    tokenizer: Tokenizer, tokenizer_folder: Path
) -> None:
    read = AutoTokenizer.from_pretrained(tokenizer_folder)
    text = "def f(x):\n    return x  # \u00e9\n"
    assert read(text)["input_ids"] == tokenizer.encode(text).ids
    assert read.decode(read(text)["input_ids"]) == text
    assert read("<|suffix|>a<|prefix|>")["input_ids"][:1] == [1]
    assert (read.eos_token_id, read.pad_token_id) == (0, 4)
