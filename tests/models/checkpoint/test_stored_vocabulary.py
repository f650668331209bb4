"""What is found out about a GGUF file's vocabulary is kept beside its check, and found out again if in doubt."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from spd_lsp.completion import tokenizer
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.models.checkpoint import stored_vocabulary
from spd_lsp.models.checkpoint.hub import locate
from spd_lsp.models.checkpoint.stored_vocabulary import read_vocabulary
from tests.models.llama.gguf_files import write_gguf


@pytest.fixture(scope="module")
def checked(tmp_path_factory) -> Path:
    """The folder of a file's check, after one use."""
    pytest.importorskip("xllamacpp")
    pytest.importorskip("gguf")
    file = write_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        folder = locate(str(file))
        ModelTokenizer(folder)
    return folder


@pytest.fixture
def folder(checked, monkeypatch, tmp_path) -> Path:
    """A copy of it in a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return shutil.copytree(checked, tmp_path / "cache" / "spd-lsp" / "gguf" / checked.name)


def assert_same(one: ModelTokenizer, other: ModelTokenizer) -> None:
    assert one.fingerprint == other.fingerprint
    assert (one.vocab_size, one.pieces) == (other.vocab_size, other.pieces)
    np.testing.assert_array_equal(one.spellings.order, other.spellings.order)


def test_what_was_kept_is_what_is_found_out(folder, monkeypatch):
    found_out = ModelTokenizer(shutil.copytree(folder, folder.parent.parent / "elsewhere"))
    monkeypatch.setattr(tokenizer, "fingerprint", lambda tokenizer: pytest.fail("found out again"))
    assert_same(ModelTokenizer(folder), found_out)


def test_a_folder_of_the_users_is_neither_read_nor_written(folder, tmp_path):
    mine = shutil.copytree(folder, tmp_path / "mine")
    assert read_vocabulary(mine) is None
    (mine / "vocabulary.msgpack").unlink()
    ModelTokenizer(mine)
    assert not (mine / "vocabulary.msgpack").exists()


def test_another_tokenizer_is_found_out_about(folder):
    path = folder / "tokenizer.json"
    path.write_bytes(path.read_bytes().replace(b'"<|fim_prefix|>"', b'"<|fim_praefix|>"'))
    assert read_vocabulary(folder) is None
    assert ModelTokenizer(folder).is_special("<|fim_praefix|>")
    assert read_vocabulary(folder) is not None


def test_another_way_of_finding_out_is_used(folder, monkeypatch):
    monkeypatch.setattr(stored_vocabulary, "_FORMAT", stored_vocabulary._FORMAT + 1)
    assert read_vocabulary(folder) is None


@pytest.mark.parametrize("place", [0, 100, -1])
@pytest.mark.parametrize("cut", [False, True])
def test_a_damaged_file_costs_only_time(folder, place, cut):
    path = folder / "vocabulary.msgpack"
    expected, content = ModelTokenizer(folder), bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content[:place] if cut else content)
    assert read_vocabulary(folder) is None
    assert_same(ModelTokenizer(folder), expected)
    assert read_vocabulary(folder) is not None


def test_a_folder_that_cannot_be_written_costs_only_time(folder, monkeypatch):
    (folder / "vocabulary.msgpack").unlink()

    def refuse(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    assert ModelTokenizer(folder).pieces
