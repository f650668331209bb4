"""Decoders: all take and give the same; each costs what it says."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.decoders import DECODERS, TOP_P, draw
from spd_lsp.drafts import Start, superpose
from spd_lsp.settings import Settings
from tests.conftest import TinyModel

every_decoder = pytest.mark.parametrize("name", sorted(DECODERS))


def never(ids):
    return False


@every_decoder
def test_every_decoder_counts_its_passes_and_keeps_to_the_length(name):
    model = TinyModel(1)
    found = DECODERS[name](model, Start([1, 2], never), Settings(drafts=3, max_tokens=6), lambda: None)
    assert found.passes == model.passes
    assert 1 <= len(found.best) <= 3
    assert all(len(draft.ids) == 6 for draft in found.best)


@every_decoder
def test_every_decoder_gives_the_same_for_the_same(name):
    def run():
        return DECODERS[name](TinyModel(1), Start([1, 2], never), Settings(drafts=3, max_tokens=6), lambda: None)

    assert run() == run()


@every_decoder
def test_every_decoder_can_be_stopped(name):
    def check():
        raise KeyboardInterrupt

    model = TinyModel(1)
    with pytest.raises(KeyboardInterrupt):
        DECODERS[name](model, Start([1, 2], never), Settings(), check)
    assert model.passes == 0


@every_decoder
def test_every_decoder_is_a_setting(name):
    assert Settings(decoder=name).decoder in DECODERS


def test_superposed_costs_one_draft_and_the_others_k():
    passes = {
        name: decode(TinyModel(1), Start([1, 2], never), Settings(drafts=3, max_tokens=6), lambda: None).passes
        for name, decode in DECODERS.items()
    }
    assert passes == {"superposed": 6, "greedy": 6, "nucleus": 18, "nucleus-superposed": 18}


def test_nucleus_superposed_finishes_each_sample_as_superpose_would():
    chosen = Settings(drafts=1, max_tokens=8)
    (draft,) = DECODERS["nucleus-superposed"](TinyModel(2), Start([1, 2], never), chosen, lambda: None).best
    start = Start([1, 2], never).after(draft.ids[:3])
    rest = superpose(TinyModel(2), start, Settings(drafts=1, max_tokens=5))
    assert draft.ids[3:] == rest.best[0].ids


def test_draw_keeps_to_the_fewest_that_hold_the_mass():
    random = np.random.default_rng(1)
    drawn = [draw(np.log([0.6, 0.35, 0.05]), random) for _ in range(2000)]
    assert TOP_P < 0.95
    assert set(drawn) == {0, 1}
    assert drawn.count(0) / 2000 == pytest.approx(0.6 / 0.95, abs=0.05)
