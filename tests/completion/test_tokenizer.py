"""Tokens: text comes back, the prompt is laid out as the model was taught, the cursor may split a word."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from ngram_builders.errors import UserError
from spd_lsp.completion.tokenizer import ModelTokenizer
from tests.completion.vocabularies import save_tokenizer
from tests.conftest import STARTER, STARTER_FILES

starter = ModelTokenizer(STARTER)


@hypothesis_settings(deadline=None)  # the first example waits for the vocabulary's bytes
@given(st.text())
def test_bytes_of_the_ids_are_the_text(text):
    assert starter.bytes_of(starter.encode(text)) == text.encode()


@given(st.text(st.sampled_from("ab (.=\n\tdefé"), min_size=1))
def test_what_is_taken_back_completes_the_history(text):
    prompt = starter.prompt(text, "")
    assert starter.bytes_of(prompt.history) + prompt.spelling.healed == text.encode()


def test_a_special_token_spelled_in_source_is_text(tokens):
    ids = tokens.encode('EOT = "<|endoftext|>"')
    assert tokens.end_of_text not in ids
    assert tokens.bytes_of(ids) == b'EOT = "<|endoftext|>"'


def test_the_fingerprint_ignores_the_order_and_padding_but_not_the_rules(tmp_path):
    def saved(name, **changes):
        rules = json.loads((STARTER_FILES / "tokenizer.json").read_text(encoding="utf-8"))
        folder = tmp_path / name
        folder.mkdir()
        (folder / "tokenizer.json").write_text(
            json.dumps(dict(reversed(rules.items())) | changes), encoding="utf-8"
        )
        return ModelTokenizer(folder).fingerprint

    assert saved("reordered") == starter.fingerprint
    padding = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None}
    padding |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "<|pad|>"}
    assert saved("padded", padding=padding) == starter.fingerprint
    assert saved("other", pre_tokenizer={"type": "Digits", "individual_digits": True}) != starter.fingerprint


def test_runs_of_blanks_that_are_added_tokens_keep_the_indentation(tmp_path):
    """As in GPT-NeoX, whose tokenizer has one for each length up to 24."""
    blanks = [AddedToken(" " * n, special=False, normalized=True) for n in (2, 4, 8)]
    tokens = save_tokenizer(tmp_path, specials=["<|endoftext|>"], added=blanks)
    source = "def f():\n    if x:\n        y()\n"
    ids = tokens.encode(source)
    assert tokens.vocabulary.tokenizer.token_to_id(" " * 8) in ids
    assert tokens.bytes_of(ids) == source.encode()
    assert not any(map(tokens.ends, ids))


def test_added_letters_are_text_and_undeclared_marks_in_source_are_characters(tmp_path):
    """DeepSeek adds letters; Qwen2.5 does not declare its fill-in-the-middle tokens special."""
    added = [AddedToken("õ", special=False), AddedToken("<|fim_prefix|>", special=False, normalized=False)]
    tokens = save_tokenizer(tmp_path, specials=["<|endoftext|>"], added=added)
    source = "x = 'õ<|fim_prefix|>'"
    ids = tokens.encode(source)
    assert tokens.vocabulary.tokenizer.token_to_id("õ") in ids
    assert tokens.vocabulary.marks["<|fim_prefix|>"] not in ids
    assert tokens.bytes_of(ids) == source.encode()


def test_tags_of_html_are_text(tmp_path):
    """Gemma has tokens for them; a draft goes on after one."""
    tags = ["<table>", "</table>", "<h1>", "</strong>", "<s>"]
    added = [AddedToken(name, special=False, normalized=False) for name in (*tags, "<unused7>", "<mask>")]
    tokens = save_tokenizer(tmp_path, specials=["<|endoftext|>"], added=added)
    source = "".join(tags) + "<mask>"
    ids = tokens.encode(source)
    assert ids[:5] == [tokens.vocabulary.tokenizer.token_to_id(name) for name in tags]
    assert not any(map(tokens.ends, ids))
    assert tokens.bytes_of(ids) == source.encode()
    assert tokens.is_special("<unused7>")


def test_the_end_of_text_is_that_of_the_configuration_if_its_name_is_unknown(tmp_path):
    tokens = save_tokenizer(tmp_path, specials=["<begin>", "<finis>"], config={"eos_token_id": [258, 257]})
    assert tokens.vocabulary.tokenizer.id_to_token(tokens.end_of_text) == "<finis>"
    with pytest.raises(UserError, match="expected a tokenizer with an end-of-text token"):
        save_tokenizer(tmp_path, specials=["<begin>", "<finis>"], config={"eos_token_id": 5})


def test_a_missing_or_damaged_tokenizer_is_named(tmp_path):
    with pytest.raises(UserError, match="not a readable tokenizer"):
        ModelTokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match="not a readable tokenizer"):
        ModelTokenizer(tmp_path)
