"""The decoders of the product are those that its setting names."""

from __future__ import annotations

import dataclasses

import pytest

from spd_lsp.decoding.best_first import best_first
from spd_lsp.decoding.decoders import choose_decoder, settings_for
from spd_lsp.decoding.multi_stream import superpose_streams
from spd_lsp.decoding.superposed import DecodingRequest, superpose
from spd_lsp.settings import Settings
from tests.conftest import TinyModel


def never(ids):
    return False


def test_each_choice_of_the_setting_is_another_decoder():
    (setting,) = (field for field in dataclasses.fields(Settings) if field.name == "decoder")
    automatic, *names = setting.metadata["choices"]
    assert automatic == setting.default == "auto"
    assert len({choose_decoder(Settings(decoder=name)) for name in names}) == len(names)


@pytest.mark.parametrize("forks_are_free", [False, True])
def test_the_model_decides_unless_the_settings_do(forks_are_free):
    def choose(is_free=False, **chosen):
        known = settings_for(Settings(**chosen), second_row_is_free=is_free, forks_are_free=forks_are_free)
        return choose_decoder(known)

    assert choose() is (best_first if forks_are_free else superpose)
    assert choose(decoder="best-first") is best_first
    for chosen in ({"decoder": "superposed"}, {"interpolation": "paper"}, {"ranking": "mean"}, {"reset_every": 4}):
        assert choose(**chosen) is superpose
    assert choose(streams=2) is choose(is_free=True) is superpose_streams


@pytest.mark.parametrize("g", [0, 1, 2, 3])
def test_superposed_drafts_share_as_many_rows_as_are_set(g):
    settings = Settings(drafts=3, max_tokens=6, streams=g)
    drafts = choose_decoder(settings)(TinyModel(1), DecodingRequest([1, 2], never), settings, lambda: None)
    assert (drafts.passes, drafts.rows) == (6, 5 * max(g, 1))
