"""A GGUF file is tried once, in a process that llama.cpp may end; its tokenizer is llama.cpp's own."""

from __future__ import annotations

import json
import subprocess
from importlib.metadata import version

import numpy as np
import pytest
from tokenizers.normalizers import NFC

from ngram_builders.errors import UserError
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.models.checkpoint import hub
from spd_lsp.models.checkpoint.hub import locate
from spd_lsp.models.llama import prepared
from spd_lsp.models.llama.context import LlamaModel
from spd_lsp.models.llama.prepared import read_source
from spd_lsp.models.load import load
from tests.conftest import PACKAGE
from tests.models.llama.gguf_files import hugging_face_tokenizer, write_gguf

CODE = (PACKAGE / "completion" / "context.py").read_text(encoding="utf-8")
ODD = "x = '¡Größe 中文 \U0001f642'\t\r\n\n\n   1234567 ^@^ <|fim_prefix|> \u2028\n"


@pytest.fixture
def file(gguf_folder):
    return gguf_folder / "Q8_0.gguf"


@pytest.mark.parametrize("text", [CODE, ODD, "", " ", "\n\n\n"])
def test_code_is_cut_as_llama_cpp_cuts_it(text, file):
    assert ModelTokenizer(locate(str(file))).encode(text) == LlamaModel(file).tokenize(text)


@pytest.mark.parametrize(
    "pre, patterns", [("llama-bpe", "Llama 3"), ("starcoder", "StarCoder"), ("gpt-2", "GPT-2")]
)
def test_other_ways_of_cutting_are_found_by_comparing(pre, patterns, tmp_path):
    pytest.importorskip("xllamacpp")
    found = ModelTokenizer(locate(str(write_gguf(tmp_path / "m.gguf", pre=pre))))
    original = hugging_face_tokenizer(patterns)
    original.encode_special_tokens = True
    assert found.encode(CODE + ODD) == original.encode(CODE + ODD, add_special_tokens=False).ids


def test_a_way_that_is_not_known_is_refused(tmp_path):
    pytest.importorskip("xllamacpp")
    with pytest.raises(UserError, match=r"does not know \(tokenizer.ggml.pre = 'viking'\); name the model's"):
        locate(str(write_gguf(tmp_path / "m.gguf", pre="viking")))


def test_a_model_trained_with_a_token_before_every_text_gets_it(file, tmp_path):
    assert ModelTokenizer(locate(str(file))).opening == []
    with_bos = write_gguf(tmp_path / "m.gguf", architecture="llama", bos=2)
    assert ModelTokenizer(locate(str(with_bos))).opening == [2]


def test_a_file_shares_the_tables_of_the_model_it_was_made_of(file, tmp_path):
    """Hugging Face's form says more, none of which changes what code becomes."""
    original = hugging_face_tokenizer()
    original.normalizer = NFC()
    original.add_tokens(["<|fim_prefix|>"])  # not special there
    original.save(str(tmp_path / "tokenizer.json"))
    assert ModelTokenizer(tmp_path).fingerprint == ModelTokenizer(locate(str(file))).fingerprint
    hugging_face_tokenizer("GPT-2").save(str(tmp_path / "tokenizer.json"))
    assert ModelTokenizer(tmp_path).fingerprint != ModelTokenizer(locate(str(file))).fingerprint


def test_a_file_is_tried_once(file, monkeypatch):
    folder = locate(str(file))
    monkeypatch.setattr(subprocess, "Popen", lambda *options, **more: pytest.fail("tried again"))
    assert locate(str(file)) == folder
    source = read_source(folder)
    assert (source.path, source.library) == (str(file), version("xllamacpp"))


def test_shares_are_told_while_a_file_is_tried(file, tmp_path):
    other, told = tmp_path / "other.gguf", []
    other.write_bytes(file.read_bytes() + bytes(96))
    locate(str(other), told.append)
    assert told[0] == "checking other.gguf, once: 0%"
    assert told[-1] == "checking other.gguf, once: 90%"
    assert told == sorted(told, key=lambda line: int(line.rpartition(" ")[2].rstrip("%")))


def test_a_trial_without_an_end_is_given_up(file, tmp_path, monkeypatch):
    other = tmp_path / "other.gguf"
    other.write_bytes(file.read_bytes() + bytes(64))
    monkeypatch.setattr(prepared, "_MAX_SECONDS", 0.01)
    with pytest.raises(UserError, match=r"other.gguf: llama.cpp did not open it within 0 minutes"):
        locate(str(other))


def test_a_file_that_moved_is_found_where_it_is(file, tmp_path):
    folder = locate(str(file))
    moved = tmp_path / "moved.gguf"
    moved.write_bytes(file.read_bytes())
    assert locate(str(moved)) == folder
    assert read_source(folder).path == str(moved)
    assert load(folder).prefill([1, 2, 3]).shape == (16384,)


def test_a_folder_elsewhere_names_no_file(tmp_path):
    (tmp_path / "gguf.json").write_text(json.dumps({"path": "/etc/passwd", "name": "x"}), encoding="utf-8")
    assert read_source(tmp_path) is None


def test_folders_of_the_cache_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(prepared, "_MAX_FOLDERS", 2)
    for name in "abc":
        (tmp_path / name).mkdir()
    prepared._prune(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_cut_off_in_its_weights_is_refused(file, tmp_path):
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"is cut off: it has [\d,]+ bytes, and the weight .* ends at"):
        locate(str(cut))


@pytest.mark.parametrize(
    "over, message",
    [
        ({"key_heads": 3}, "llama.cpp cannot open .*m.gguf: .*attn_k.weight.* has wrong shape"),
        ({"context": 0}, "m.gguf does not state its context length"),
        ({"layers": 0}, "m.gguf: llama.cpp gave up on it .*GGML_ASSERT"),  # it ends the process
    ],
)
def test_numbers_that_do_not_fit_the_weights_are_refused(over, message, tmp_path):
    pytest.importorskip("xllamacpp")
    with pytest.raises(UserError, match=message):
        locate(str(write_gguf(tmp_path / "m.gguf", kind="Q8_0", **over)))


def test_a_model_without_numbers_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("xllamacpp")
    from tests.models.llama import gguf_files

    monkeypatch.setattr(gguf_files, "_random_weight", lambda name, shape, seed: np.full(shape, np.nan, np.float32))
    with pytest.raises(UserError, match="computes NaN"):
        locate(str(write_gguf(tmp_path / "m.gguf")))


def test_what_is_no_file_is_never_looked_up_on_the_network(monkeypatch, tmp_path):
    monkeypatch.setattr(hub, "_download", lambda *arguments: pytest.fail("asked the network"))
    for name in ("owner/model.gguf", "./model.gguf", str(tmp_path / "model.GGUF")):
        with pytest.raises(UserError, match="there is no model"):
            locate(name)


def test_a_file_larger_than_the_free_memory_is_refused_before_it_is_read(file, tmp_path, monkeypatch):
    other = tmp_path / "other.gguf"
    other.write_bytes(file.read_bytes() + bytes(32))
    monkeypatch.setattr(prepared, "free_memory", lambda: 1 << 20)
    monkeypatch.setattr(subprocess, "Popen", lambda *options, **more: pytest.fail("tried"))
    with pytest.raises(UserError, match=r"other.gguf takes 0.0 GiB, but this machine has 0.0 GiB of free memory"):
        locate(str(other))
