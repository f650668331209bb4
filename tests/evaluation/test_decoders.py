"""Decoders: all take and give the same; each costs what it says."""

from __future__ import annotations

import pytest

from spd_lsp.decoding.superposed import DecodingRequest
from spd_lsp.evaluation.decoders import DECODERS
from spd_lsp.settings import Settings
from tests.conftest import TinyModel, first_of, spelled
from tests.decoding.test_superposed import Counts

every_decoder = pytest.mark.parametrize("name", sorted(DECODERS))


def never(ids):
    return False


@every_decoder
def test_every_decoder_counts_its_passes_and_keeps_to_the_length(name):
    model = TinyModel(1)
    found = DECODERS[name](model, DecodingRequest([1, 2], never), Settings(drafts=3, max_tokens=6), lambda: None)
    assert found.passes == model.passes
    assert found.rows in (model.rows, found.passes - 1)
    assert 1 <= len(found.best) <= 3
    assert all(len(draft.ids) == 6 for draft in found.best)


@every_decoder
def test_every_decoder_gives_the_same_for_the_same(name):
    def run():
        return DECODERS[name](
            TinyModel(1), DecodingRequest([1, 2], never), Settings(drafts=3, max_tokens=6), lambda: None
        )

    assert run() == run()


@every_decoder
def test_every_decoder_can_be_stopped(name):
    def check():
        raise KeyboardInterrupt

    model = TinyModel(1)
    with pytest.raises(KeyboardInterrupt):
        DECODERS[name](model, DecodingRequest([1, 2], never), Settings(), check)
    assert model.passes == 0


@every_decoder
@pytest.mark.parametrize("rule", ["linear", "paper"])
def test_every_decoder_begins_with_an_allowed_token(name, rule):

    start = DecodingRequest([1, 2], never, allowed=first_of(11, 12))
    chosen = Settings(drafts=3, max_tokens=4, interpolation=rule)
    found = DECODERS[name](TinyModel(), start, chosen, lambda: None)
    assert {draft.ids[0] for draft in found.best} <= {11, 12}


@every_decoder
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rule", ["linear", "paper"])
@pytest.mark.parametrize("counts", [None, Counts(3)])
def test_every_decoder_spells_what_is_typed_over_several_tokens(name, seed, rule, counts):
    start = DecodingRequest([1, 2], never, [2], counts, allowed=spelled)
    chosen = Settings(drafts=3, max_tokens=4, interpolation=rule)
    found = DECODERS[name](TinyModel(seed), start, chosen, lambda: None)
    assert all(draft.ids[0] == 11 or draft.ids[:2] in ((12, 13), (12, 14)) for draft in found.best)


def test_passes_and_positions_of_each():
    found = {
        name: decode(TinyModel(1), DecodingRequest([1, 2], never), Settings(drafts=3, max_tokens=6), lambda: None)
        for name, decode in DECODERS.items()
    }
    assert {name: (drafts.passes, drafts.rows) for name, drafts in found.items()} == {
        "superposed": (6, 5),
        "greedy": (6, 5),
        "best-first": (12, 11),
        "nucleus": (6, 15),
        "beam": (6, 15),
    }
