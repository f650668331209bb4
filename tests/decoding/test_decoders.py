"""The decoders are those that the setting names; without a model, n-grams alone say what follows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from spd_lsp.decoding.best_first import best_first
from spd_lsp.decoding.decoders import decoder_for
from spd_lsp.decoding.superposed import DecodingRequest, superpose
from spd_lsp.models.no_model import NoModel
from spd_lsp.settings import Settings
from tests.conftest import TinyModel
from tests.decoding.test_superposed import Counts

END = 0


def at_end(ids):
    return ids[-1] == END


def test_each_choice_of_the_setting_is_another_decoder():
    (setting,) = (field for field in dataclasses.fields(Settings) if field.name == "decoder")
    automatic, *names = setting.metadata["choices"]
    assert automatic == setting.default == "auto"
    assert len({decoder_for(TinyModel(), Settings(decoder=name)) for name in names}) == len(names)


@pytest.mark.parametrize("is_fast", [False, True])
def test_the_speed_of_the_model_decides_unless_the_settings_do(is_fast):
    def choose(**chosen):
        return decoder_for(TinyModel(), Settings(**chosen), is_fast=is_fast)

    assert choose() is (best_first if is_fast else superpose)
    assert choose(decoder="best-first") is best_first
    for chosen in ({"decoder": "superposed"}, {"interpolation": "paper"}, {"ranking": "mean"}, {"reset_every": 4}):
        assert choose(**chosen) is superpose


def draft_alone(request, decoder="best-first"):
    settings, model = Settings(max_tokens=6, decoder=decoder), NoModel(40, END)
    result = decoder_for(model, settings)(model, request, settings, lambda: None)
    assert (result.passes, result.rows) == (0, 0)
    return [list(one.ids) for one in result.best]


@pytest.mark.parametrize("decoder", ["superposed", "best-first"])
def test_without_a_model_a_draft_has_no_token_that_ngrams_do_not_know_and_then_ends(decoder):
    assert draft_alone(DecodingRequest([3, 5], at_end, history=[3, 5]), decoder) == [[END]]
    counts = Counts(3)
    found = draft_alone(DecodingRequest([3, 5], at_end, history=[3, 5], interpolation=counts), decoder)
    assert found
    for ids in found:
        for place, token in enumerate(ids):
            known = counts([[3, 5, *ids[:place]]], np.array([token]))[0, 0] > 0
            assert known or token == END


def test_without_a_model_what_is_typed_is_spelled_or_nothing_is_said():
    typed = DecodingRequest([3, 5], at_end, history=[3, 5], allowed=lambda ids: None if ids else np.array([39]))
    assert draft_alone(typed)[0] in ([END], [39, END])
