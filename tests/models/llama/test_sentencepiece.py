"""SentencePiece vocabularies in GGUF files share the tables of the tokenizer.json that they come from."""

from __future__ import annotations

import pytest

from spd_lsp.completion.tokenizer import ModelTokenizer
from tests.models.llama.sentencepiece_files import (
    BLANKS,
    CONTROL,
    NORMAL,
    SNIPPETS,
    USER_DEFINED,
    Vocabulary,
    write_sentencepiece,
)

pytestmark = pytest.mark.usefixtures("needs_llama")

CODE = "".join(path.read_text(encoding="utf-8") for path in sorted(SNIPPETS.iterdir()))
ODD = (
    "x = '¡Größe 中文 \U0001f642'\t\r\n\n\n   1234567 ^@^ <s> </s> <0x0A> Ġ \u2028\n"
    + " " * 100
    + "=" * 37
    + "\n" * 9
)
MARKS = [(f"▁<{name}>", NORMAL) for name in ("PRE", "MID", "SUF", "EOT")]
FAMILIES = {
    "Llama 2": Vocabulary(),
    "Code Llama": Vocabulary(MARKS),
    "CodeGemma": Vocabulary(
        [
            *((blanks, USER_DEFINED) for blanks in BLANKS),
            *((name, USER_DEFINED) for name in ("\n\n", "<h1>", "</strong>")),
            ("<|fim_prefix|>", CONTROL),
        ],
        blank_first=False,
    ),
}
FAMILIES["Gemma 4"] = Vocabulary([("\n\n", USER_DEFINED)], blank_first=False, kind="gemma4")  # which has merges


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def file(family, tmp_path_factory):
    return write_sentencepiece(tmp_path_factory.mktemp("family") / "m.gguf", FAMILIES[family])


@pytest.fixture(scope="module")
def tokens(file):
    return ModelTokenizer(file)


def test_the_bytes_of_tokens_are_the_text(tokens):
    blank = b" " if tokens.puts_blank_first else b""
    assert tokens.bytes_of(tokens.encode(CODE + ODD)) == blank + (CODE + ODD).encode()


def test_a_file_shares_the_tables_of_the_model_it_was_made_of(family, tokens, tmp_path):
    FAMILIES[family].hugging_face_tokenizer().save(str(tmp_path / "tokenizer.json"))
    original = ModelTokenizer(tmp_path)
    assert original.fingerprint == tokens.fingerprint
    assert original.encode(CODE) == tokens.encode(CODE)


def test_a_text_begins_with_the_token_that_the_model_was_trained_with(tokens):
    assert tokens.opening == [1]
    assert tokens.end_of_text == 2


def test_code_llamas_marks_are_marks_whatever_their_kind(tmp_path):
    for kind in (NORMAL, CONTROL, USER_DEFINED):
        marks = [(name, kind) for name, _ in MARKS]
        tokens = ModelTokenizer(write_sentencepiece(tmp_path / f"{kind}.gguf", Vocabulary(marks)))
        assert tokens.fill_format is not None
        assert tokens.fill_format.name == "code-llama"
        names = {i: name for name, i in tokens.vocabulary.marks.items()}
        found = [names[i] for i in tokens.prompt("a = b", "c").ids if i in names]
        assert found == ["<s>", "▁<PRE>", "▁<SUF>", "▁<MID>"]
        is_cut = kind != USER_DEFINED  # of a text, llama.cpp makes such tokens first
        assert not (is_cut and set(tokens.encode("a ▁<PRE> <PRE> b")) & tokens.specials)
