"""Which of an editor's many words on a setting counts, and what of it needs a completer made anew."""

from __future__ import annotations

import dataclasses

import pytest

from spd_lsp.configuration import Configuration, opens_anew
from spd_lsp.settings import Settings

ANEW = {"model": "mine", "device": "cuda", "data_dir": "/data", "refresh": False}


def test_flags_count_more_than_the_configuration_and_it_more_than_the_first_options():
    said = Configuration(Settings(device="cpu"), fixed=("model",))
    said.started_with = {"drafts": 2, "alpha": 0.25, "device": "cuda"}
    said.send({"spd-lsp": {"drafts": 5, "model": "mine", "serverCommand": ["x"]}, "other": {"drafts": 7}})
    assert said.settings() == (Settings(device="cpu", drafts=5, alpha=0.25), [])


def test_what_is_no_object_is_named_and_an_empty_list_is_an_empty_object():
    said = Configuration(Settings())
    said.started_with, said.configured = [], [1]
    settings, (problem,) = said.settings()
    assert settings == Settings()
    assert "expected an object" in problem


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Settings)])
def test_only_what_chooses_model_and_tables_opens_anew(field: str):
    other = dataclasses.replace(Settings(), **{field: ANEW.get(field, "something else")})
    assert opens_anew(Settings(), other) == (field in ANEW)
