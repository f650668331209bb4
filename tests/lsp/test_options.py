"""Which of an editor's many words on a setting counts, and what of it needs a completer made anew."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from spd_lsp.lsp.options import ANY_FOLDER, Configuration, opens_anew
from spd_lsp.settings import Settings

ANEW = {"model": "owner/mine", "device": "cuda", "data_dir": "/data", "refresh": False}
OTHERS = {
    "model": "owner/mine",
    "device": "cpu",
    "data_dir": "/data",
    "refresh": False,
    "decoder": "beam",
    "streams": 2,
    "max_tokens": 8,
    "context_tokens": 64,
    "interpolation": "paper",
    "ranking": "mean",
    "alpha": 0.5,
    "temperature": 0.5,
    "candidates": 5,
    "ngram_trust": 0.5,
    "longest_order": 3,
    "least_probability": 0.5,
    "reset_every": 3,
    "enabled": False,
    "drafts": 7,
    "languages_off": ("python",),
}


def test_flags_count_more_than_the_configuration_and_it_more_than_the_first_options():
    said = Configuration(Settings(device="cpu"), fixed=("model",))
    said.start({"drafts": 2, "alpha": 0.25, "device": "cuda"})
    said.send({"spd-lsp": {"drafts": 5, "model": "o/mine", "serverCommand": ["x"]}, "other": {"drafts": 7}})
    assert said.settings() == (Settings(device="cpu", drafts=5, alpha=0.25), [])


def test_what_an_opened_folder_may_set_is_a_short_list():
    assert set(ANY_FOLDER) == {"enabled", "drafts", "languages_off"}


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Settings)])
def test_a_configuration_sets_what_any_folder_may_and_the_editors_own_options_set_all(name: str):
    assert OTHERS[name] != getattr(Settings(), name)
    chosen = dataclasses.replace(Settings(), **{name: OTHERS[name]})
    said = Configuration(Settings())
    said.configure({name: OTHERS[name]})
    settings, problems = said.settings()
    if name in ANY_FOLDER:
        assert (settings, problems) == (chosen, [])
    else:
        assert settings == Settings()
        (problem,) = problems
        assert problem.startswith(f"'{name}' of the configuration may come from the folder that is open")
        assert "set it in the editor's initializationOptions" in problem
    said.start({name: OTHERS[name]})
    assert said.settings() == (chosen, [])


def test_what_agrees_with_the_settings_in_use_is_not_mentioned():
    """VS Code sends all of its configuration, that which a person chose included."""
    said = Configuration(Settings())
    said.start({"temperature": 0.5})
    said.configure({"temperature": 0.5, "model": "starter", "drafts": 4})
    assert said.settings() == (Settings(temperature=0.5, drafts=4), [])


@pytest.mark.parametrize(
    ("take", "name", "value", "wrong"),
    [("start", "device", "cpu", "meta"), ("start", "candidates", 5, 0), ("configure", "drafts", 5, "many")],
)
def test_a_wrong_value_leaves_the_one_before_and_a_missing_one_is_the_default(
    take: str, name: str, value: Any, wrong: Any
):
    said = Configuration(Settings())
    getattr(said, take)({name: value})
    getattr(said, take)({name: wrong})
    settings, (problem,) = said.settings()
    assert getattr(settings, name) == value
    assert problem.endswith(f"found {wrong!r}; {value!r} is used")
    getattr(said, take)({})
    assert said.settings() == (Settings(), [])


def test_what_is_no_object_is_named_and_an_empty_list_is_an_empty_object():
    said = Configuration(Settings())
    said.start([])
    said.configure([1])
    settings, (problem,) = said.settings()
    assert settings == Settings()
    assert "expected an object" in problem


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Settings)])
def test_only_what_chooses_model_and_tables_opens_anew(field: str):
    other = dataclasses.replace(Settings(), **{field: ANEW.get(field, "something else")})
    assert opens_anew(Settings(), other) == (field in ANEW)
    assert opens_anew(None, other)
