"""Without a model, n-grams alone say what follows; what they do not know is no draft."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.decoding.decoders import decoder_for
from spd_lsp.decoding.superposed import DecodingRequest
from spd_lsp.models.no_model import NoModel
from spd_lsp.settings import Settings
from tests.decoding.test_superposed import Counts

VOCABULARY, END = 40, 0


def draft(request: DecodingRequest, decoder: str = "auto") -> list[list[int]]:
    settings = Settings(max_tokens=6, decoder=decoder)
    model = NoModel(VOCABULARY, END)
    result = decoder_for(model, settings)(model, request, settings, lambda: None)
    assert (result.passes, result.rows) == (0, 0)
    return [list(one.ids) for one in result.best]


@pytest.mark.parametrize("decoder", ["superposed", "best-first"])
def test_where_ngrams_know_nothing_every_draft_ends_at_once(decoder):
    request = DecodingRequest([3, 5], lambda ids: ids[-1] == END, history=[3, 5])
    assert draft(request, decoder) == [[END]]


@pytest.mark.parametrize("decoder", ["superposed", "best-first"])
def test_a_draft_has_no_token_that_ngrams_do_not_know(decoder):
    counts = Counts(3)
    request = DecodingRequest([3, 5], lambda ids: ids[-1] == END, history=[3, 5], interpolation=counts)
    found = draft(request, decoder)
    assert found
    for ids in found:
        for place, token in enumerate(ids):
            known = counts([[3, 5, *ids[:place]]], np.array([token]))[0, 0] > 0
            assert known or token == END


def test_what_is_typed_is_spelled_or_nothing_is_said():
    request = DecodingRequest(
        [3, 5], lambda ids: ids[-1] == END, history=[3, 5], allowed=lambda ids: None if ids else np.array([39])
    )
    assert draft(request)[0] in ([END], [39, END])
