"""SentencePiece vocabularies in GGUF files are cut as llama.cpp cuts them, and share the original's tables."""

from __future__ import annotations

import pytest

from ngram_builders.errors import UserError
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.models.checkpoint.hub import locate
from spd_lsp.models.llama.context import LlamaModel
from tests.conftest import PACKAGE
from tests.models.llama.sentencepiece_files import (
    BLANKS,
    CONTROL,
    NORMAL,
    USER_DEFINED,
    Vocabulary,
    write_sentencepiece,
)

pytestmark = pytest.mark.usefixtures("needs_llama")

FILES = [path.read_text(encoding="utf-8") for path in sorted((PACKAGE / "completion").glob("*.py"))]
CODE = "".join(FILES).replace("▁", "_")  # which stands for a blank
ODD = (
    "x = '¡Größe 中文 \U0001f642'\t\r\n\n\n   1234567 ^@^ <s> </s> <0x0A> Ġ \u2028\n"
    + " " * 100
    + "=" * 37
    + "\n" * 9
)
MARKS = [(f"▁<{name}>", NORMAL) for name in ("PRE", "MID", "SUF", "EOT")]
TAGS = ("<h1>", "</strong>", "<td>")
FAMILIES = {
    "Llama 2": Vocabulary(),
    "Code Llama": Vocabulary(MARKS),
    "CodeGemma": Vocabulary(
        [
            *((blanks, USER_DEFINED) for blanks in BLANKS),
            *((name, USER_DEFINED) for name in ("\n\n", *TAGS)),
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
    return ModelTokenizer(locate(str(file)))


def test_code_is_cut_as_llama_cpp_cuts_it(tokens, file):
    own = LlamaModel(file)
    for text in (CODE, ODD, "▁", "", " ", "\n\n\n", "x", "    return x\n"):
        assert tokens.encode(text) == own.tokenize(text)


def test_the_bytes_of_tokens_are_the_text(tokens):
    blank = b" " if tokens.puts_blank_first else b""
    assert tokens.bytes_of(tokens.encode(CODE + ODD)) == blank + (CODE + ODD).encode()
    assert tokens.tokenizer.decode(tokens.encode("if x:\n    é")) == "if x:\n    é"


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
        tokens = ModelTokenizer(locate(str(write_sentencepiece(tmp_path / f"{kind}.gguf", Vocabulary(marks)))))
        assert tokens.fill_format is not None
        assert tokens.fill_format.name == "code-llama"
        names = [tokens.tokenizer.id_to_token(i) for i in tokens.prompt("a = b", "c").ids]
        assert [name for name in names if "<" in name] == ["<s>", "▁<PRE>", "▁<SUF>", "▁<MID>"]
        assert not set(tokens.encode("a ▁<PRE> <PRE> b")) & tokens.specials


def test_tags_that_have_tokens_are_text(family, tokens, file):
    text = "x = '<h1></strong>'<td>"
    assert tokens.encode(text) == LlamaModel(file).tokenize(text)
    assert (tokens.tokenizer.token_to_id("<h1>") in tokens.encode(text)) == (family == "CodeGemma")
    assert not set(tokens.encode(text)) & tokens.specials


def test_a_file_without_scores_is_refused(tmp_path, monkeypatch):
    from gguf import GGUFWriter

    monkeypatch.setattr(GGUFWriter, "add_token_scores", lambda writer, scores: None)
    with pytest.raises(UserError, match="has no scores of its tokens"):
        locate(str(write_sentencepiece(tmp_path / "m.gguf", FAMILIES["Llama 2"])))


def test_other_kinds_are_refused_in_a_sentence(tmp_path, monkeypatch):
    from gguf import GGUFWriter

    write = GGUFWriter.add_tokenizer_model
    monkeypatch.setattr(GGUFWriter, "add_tokenizer_model", lambda writer, name: write(writer, "t5"))
    with pytest.raises(
        UserError, match="a tokenizer of the kind 't5', and only byte-level and SentencePiece ones"
    ):
        locate(str(write_sentencepiece(tmp_path / "m.gguf", FAMILIES["Llama 2"])))
