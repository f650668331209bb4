"""Which source of a setting wins, what an open folder may set, and what makes the server reload the model."""

from __future__ import annotations

import dataclasses

import pytest

from spd_lsp.lsp.options import Configuration, needs_reload
from spd_lsp.settings import Settings

OTHERS = {
    "enabled": False,
    "model": "owner/mine",
    "device": "cpu",
    "threads": 2,
    "drafts": 7,
    "max_tokens": 8,
    "context_tokens": 64,
    "min_probability": 0.5,
    "automatic": False,
    "delay": 300,
    "automatic_menu": True,
    "one_line": True,
    "next_edits": False,
    "disabled_languages": ("python",),
    "indexing": "off",
    "data_dir": "/data",
    "ngram_weight": 0.5,
    "fill_format": "qwen",
}


def test_flags_override_the_configuration_which_overrides_the_options_which_override_the_file():
    configuration = Configuration(Settings(device="cpu", delay=5, drafts=9), fixed=("model", "device"))
    configuration.set_options({"drafts": 2, "ngramWeight": 0.25, "device": "cuda"})
    configuration.set_configuration({"drafts": 5, "model": "o/mine", "serverCommand": ["x"]})
    assert configuration.merged() == Settings(device="cpu", delay=5, drafts=5, ngram_weight=0.25)
    assert configuration.take_problems() == []


@pytest.mark.parametrize("name", OTHERS)
def test_an_open_folder_may_set_three_settings_and_the_options_set_everything(name: str):
    options, chosen = {name: OTHERS[name]}, dataclasses.replace(Settings(), **{name: OTHERS[name]})
    configuration = Configuration(Settings())
    configuration.set_configuration(options)
    if name in ("enabled", "drafts", "disabled_languages"):
        assert (configuration.merged(), configuration.take_problems()) == (chosen, [])
    else:
        assert configuration.merged() == Settings()
        (problem,) = configuration.take_problems()
        assert f"{name}' ignored: this configuration may come from the open folder" in problem
        assert "use the editor's initializationOptions" in problem
    configuration.set_options(options)
    assert (configuration.merged(), configuration.take_problems()) == (chosen, [])


def test_a_configuration_that_agrees_with_the_settings_in_use_is_not_reported():
    """Some editors send all of their configuration, including what the user chose."""
    configuration = Configuration(Settings())
    configuration.set_options({"ngramWeight": 0.5})
    configuration.set_configuration({"ngramWeight": 0.5, "model": "starter", "drafts": 4})
    assert configuration.merged() == Settings(ngram_weight=0.5, drafts=4)
    assert configuration.take_problems() == []


def test_an_invalid_value_is_reported_and_left_out():
    configuration = Configuration(Settings())
    configuration.set_options({"device": "meta", "drafts": 5})
    assert configuration.merged() == Settings(drafts=5)
    configuration.set_configuration({"drafts": "many"})
    assert configuration.merged() == Settings(drafts=5)
    device, drafts = configuration.take_problems()
    assert device.endswith("not 'meta'; ignored") and drafts.endswith("not 'many'; ignored")


def test_settings_that_are_not_an_object_are_reported_but_an_empty_list_is_an_empty_object():
    configuration = Configuration(Settings())
    configuration.set_options([])
    configuration.set_configuration([1])
    assert configuration.merged() == Settings()
    (problem,) = configuration.take_problems()
    assert "must be an object" in problem


@pytest.mark.parametrize("name", OTHERS)
def test_only_what_chooses_model_and_tables_reloads(name: str):
    other = dataclasses.replace(Settings(), **{name: OTHERS[name]})
    assert needs_reload(Settings(), other) == (name in ("model", "device", "data_dir", "indexing", "fill_format"))
