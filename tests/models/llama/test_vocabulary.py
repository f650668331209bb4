"""A GGUF file's texts are cut as its tokenizer.json cuts them, and its tables are shared."""

from __future__ import annotations

import pytest
from tokenizers.normalizers import NFC

from ngram_builders.errors import UserError
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.models.llama.gguf_file import LlamaVocabulary
from spd_lsp.models.vocabulary import JsonVocabulary
from tests.conftest import PACKAGE, STARTER
from tests.models.llama.gguf_files import MARKS, hugging_face_tokenizer, write_gguf
from tests.models.llama.sentencepiece_files import SNIPPETS

pytestmark = pytest.mark.usefixtures("needs_llama")

CODE = [path.read_text(encoding="utf-8") for path in sorted(SNIPPETS.iterdir())]
ODD = [
    *("", " ", "\n\n\n", "\r", "\r\n \r\n", "\0", "a\0b", "\t\t x", " " * 300, "=" * 99, "x" * 2000),
    "x = '¡Größe 中文 \U0001f642'\t\r\n\n\n   1234567 ^@^ <|fim_prefix|> \u2028\n",
    *("👨‍👩‍👧🏽", "e\u0301 ﬁ ſ İ", "한국어 日本語", "\u200b\ufeff\u3000\xa0\x85", "\ufffd", "\x01\x1c\x7f"),
    *("don't WE'RE it'S", "<|endoftext|>", "a</s><s>", "<tool_call>", "<0x0A>", "Ġ▁Ċ"),
]


@pytest.fixture
def file(gguf_folder):
    return gguf_folder / "Q8_0.gguf"


@pytest.mark.parametrize(
    "pre, patterns",
    [("qwen2", "Qwen"), ("llama-bpe", "Llama 3"), ("starcoder", "StarCoder"), ("gpt-2", "GPT-2")],
)
def test_code_is_cut_as_the_tokenizer_json_cuts_it(pre, patterns, tmp_path):
    tokens = ModelTokenizer(write_gguf(tmp_path / "m.gguf", pre=pre))
    original = hugging_face_tokenizer(patterns)
    original.encode_special_tokens = True
    texts = [*CODE, *ODD]
    expected = [original.encode(text, add_special_tokens=False).ids for text in texts]
    assert [tokens.encode(text) for text in texts] == list(tokens.encode_batch(texts)) == expected


def test_the_bytes_of_ids_are_the_text(file):
    tokens = ModelTokenizer(file)
    for text in (*CODE, *ODD):
        assert tokens.bytes_of(tokens.encode(text)) == text.encode()
        assert not any(map(tokens.ends, tokens.encode(text)))


def test_marks_are_found_by_name(file):
    tokens = ModelTokenizer(file)
    assert tokens.fill_format is not None
    assert tokens.fill_format.name == "qwen"
    assert all(map(tokens.is_special, (*MARKS, "<|endoftext|>")))
    assert not tokens.is_special("def")


def test_a_model_trained_with_a_token_before_every_text_gets_it(file, tmp_path):
    assert ModelTokenizer(file).opening == []
    assert ModelTokenizer(write_gguf(tmp_path / "m.gguf", architecture="llama", bos=2)).opening == [2]


def test_a_file_shares_the_tables_of_the_model_it_was_made_of(file, tmp_path):
    """Hugging Face's form says more, none of which changes what code becomes."""
    original = hugging_face_tokenizer()
    original.normalizer = NFC()
    original.add_tokens(["<|fim_prefix|>"])  # not special there
    original.save(str(tmp_path / "tokenizer.json"))
    assert ModelTokenizer(tmp_path).fingerprint == ModelTokenizer(file).fingerprint
    hugging_face_tokenizer("GPT-2").save(str(tmp_path / "tokenizer.json"))
    assert ModelTokenizer(tmp_path).fingerprint != ModelTokenizer(file).fingerprint


def test_the_starters_tokenizer_json_is_that_of_its_file():
    """One is read for the vocabulary, the other for the weights."""
    folder = PACKAGE / "starter"
    ours, llama = JsonVocabulary(folder), LlamaVocabulary(folder / STARTER.name)
    assert (ours.fingerprint, ours.pieces, ours.marks) == (llama.fingerprint, llama.pieces, llama.marks)
    for text in (*CODE, *ODD):
        assert ours.encode(text) == llama.encode(text)


def test_a_way_of_cutting_that_llama_cpp_does_not_know_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"cannot open .*unknown pre-tokenizer type: 'own'"):
        ModelTokenizer(write_gguf(tmp_path / "m.gguf", pre="own"))
