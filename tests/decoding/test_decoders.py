"""The decoders of the product are those that its setting names."""

from __future__ import annotations

import dataclasses

import pytest

from spd_lsp.decoding.decoders import DECODERS
from spd_lsp.decoding.superposed import DecodingRequest
from spd_lsp.settings import Settings
from tests.conftest import TinyModel


def never(ids):
    return False


def test_the_decoders_are_the_choices_of_the_setting():
    (setting,) = (field for field in dataclasses.fields(Settings) if field.name == "decoder")
    assert setting.metadata["choices"] == tuple(DECODERS)


@pytest.mark.parametrize("g", [1, 2, 3])
def test_superposed_drafts_share_as_many_rows_as_are_set(g):
    chosen = Settings(drafts=3, max_tokens=6, streams=g)
    found = DECODERS["superposed"](TinyModel(1), DecodingRequest([1, 2], never), chosen, lambda: None)
    assert (found.passes, found.rows) == (6, 5 * g)
