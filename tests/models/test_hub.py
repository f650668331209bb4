"""Checkpoints: a model is the shipped one, a folder, or an id; what is missing is named."""

from __future__ import annotations

import shutil
import sys

import pytest

from ngram_builders.errors import UserError
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.models.hub import (
    absolute_model_name,
    known_languages,
    locate,
    shipped_settings,
)
from tests.conftest import PACKAGE, STARTER_FILE


def test_the_starter_is_in_the_package(monkeypatch):
    monkeypatch.delenv("SPD_LSP_STARTER")
    folder, shipped = locate("starter"), PACKAGE / "starter"
    [file] = shipped.glob("*.gguf")
    assert folder == file
    assert file.stat().st_size <= 80 * 2**20
    languages = {"python", "typescript", "go", "rust", "c", "cpp", "java"}
    assert known_languages(folder) == languages
    assert shipped_settings("starter", folder) == {"context_tokens": 384}
    assert shipped_settings("none", folder) == {}
    tokens = ModelTokenizer(folder)
    assert tokens.fill_format.name == "starter"


def test_another_folder_may_hold_the_starter(tmp_path, monkeypatch):
    monkeypatch.setenv("SPD_LSP_STARTER", str(tmp_path))
    with pytest.raises(UserError, match="has no GGUF file, which the bundled model is; install spd-lsp again"):
        locate("starter")
    shutil.copy(STARTER_FILE, tmp_path)
    assert known_languages(locate("starter")) is None


def test_no_model_has_the_starters_vocabulary():
    folder, starter = locate("none"), locate("starter")
    none, model = ModelTokenizer(folder), ModelTokenizer(starter)
    assert (none.fingerprint, none.pieces, none.end_of_text) == (
        model.fingerprint,
        model.pieces,
        model.end_of_text,
    )
    assert known_languages(folder) == known_languages(starter)


@pytest.mark.parametrize("name", ["owner/name", "name"])
def test_a_folder_of_the_working_folder_is_no_model_unless_it_is_written_as_a_path(tmp_path, monkeypatch, name):
    """Somebody else may have filled the working folder."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / name
    folder.mkdir(parents=True)
    for file in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / file).touch()
    with pytest.raises(UserError, match=r"path such as \./mine"):
        locate(name)
    assert absolute_model_name(name) == name
    for written in (f"./{name}", f"../{tmp_path.name}/{name}", str(folder)):
        assert locate(written).resolve() == folder
        assert absolute_model_name(written) == str(folder)


@pytest.mark.parametrize("name", ["owner/..", "a--b/c", "-a/b", "a/b.git", "nobody/nothing"])
def test_an_id_that_is_invalid_or_not_stored_is_reported_in_one_sentence(monkeypatch, name):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=f"model {name} is not stored here and could not be downloaded"):
        locate(name)


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_that_lacks_a_file_is_refused_with_its_name(tmp_path, missing):
    for name in {"config.json", "tokenizer.json", "model.safetensors"} - {missing}:
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=missing.replace("model", r"\*")):
        locate(str(tmp_path))


def test_pickled_weights_are_refused(tmp_path):
    for name in ("config.json", "tokenizer.json", "pytorch_model.bin"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=r"pickled weights .* are not opened"):
        locate(str(tmp_path))


@pytest.mark.parametrize("model", ["no-such-model", "./not/there", "a/b/c"])
def test_an_unknown_name_is_refused_without_asking_the_network(model):
    with pytest.raises(UserError, match="there is no model"):
        locate(model)


def test_nothing_is_downloaded_that_could_not_be_opened(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"^model owner/name needs transformers, .*spd-lsp\[models\]"):
        locate("owner/name")
