"""A `tokenizer.json` that would take gigabytes, or forever, is refused in a sentence."""

from __future__ import annotations

import json

import pytest

from ngram_builders.errors import UserError
from spd_lsp.completion.tokenizer import ModelTokenizer
from tests.conftest import STARTER


@pytest.fixture
def rules():
    return json.loads((STARTER / "tokenizer.json").read_text(encoding="utf-8"))


def opened(folder, rules):
    (folder / "tokenizer.json").write_text(json.dumps(rules), encoding="utf-8")
    return ModelTokenizer(folder)


def cut_by(rules, pattern):
    rules["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": pattern}
    return rules


@pytest.mark.parametrize("largest", [1 << 23, (1 << 32) - 1])
def test_an_id_that_would_take_gigabytes_is_refused(rules, tmp_path, largest):
    rules["model"]["vocab"]["a token of another vocabulary"] = largest
    with pytest.raises(
        UserError, match=rf"has a token with the id {largest:,}, and ids up to .*; restore the file"
    ):
        opened(tmp_path, rules)


def test_holes_in_a_vocabulary_are_fine(rules, tmp_path):
    rules["model"]["vocab"]["behind a hole"] = 20_000
    tokens = opened(tmp_path, rules)
    assert tokens.vocab_size == 20_001
    assert tokens.bytes_of(tokens.encode("x = 1\n")) == b"x = 1\n"


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)+b", "(.*a){20}$", r"(\s|\s)+z", r"(?:\w|_)+(?:\w|_)+$|(0*)*;"]
)
def test_an_expression_that_tries_every_way_is_refused_at_once(rules, tmp_path, pattern):
    with pytest.raises(UserError, match=r"cannot tokenize this text .* choose another model"):
        opened(tmp_path, cut_by(rules, pattern))


def test_one_that_only_some_text_shows_is_an_error_like_others(rules, tmp_path):
    """The tokenizers library raises what no `except Exception` catches."""
    tokens = opened(tmp_path, cut_by(rules, "(qr+)+(qr+)+;|(q|q)+;"))
    hard = "q" * 60
    for cut in (tokens.encode, tokens.count, lambda text: list(tokens.encode_batch([text, "x"]))):
        with pytest.raises(UserError, match="cannot tokenize this text"):
            cut(hard)
    assert tokens.encode("x = 1\n")
