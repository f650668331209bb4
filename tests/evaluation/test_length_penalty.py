"""With a length penalty beam search compares drafts by score / tokens^penalty; without one it is the product's."""

from __future__ import annotations

import pytest

from spd_lsp.decoding.hypotheses import Draft
from spd_lsp.decoding.superposed import Start
from spd_lsp.evaluation.beam_search import beam
from spd_lsp.evaluation.length_penalty import penalised_beam, worth
from spd_lsp.settings import Settings
from tests.conftest import TinyModel

SETTINGS = Settings(drafts=3, candidates=10, max_tokens=6)


def start():
    return Start([1, 2], lambda ids: ids[-1] == 3)


def nothing():
    pass


@pytest.mark.parametrize("seed", range(5))
def test_no_penalty_is_the_products_beam_search(seed):
    found = penalised_beam(TinyModel(seed, 10), start(), SETTINGS, nothing, 0.0)
    usual = beam(TinyModel(seed, 10), start(), SETTINGS, nothing)
    assert [draft.ids for draft in found.best] == [draft.ids for draft in usual.best]
    assert found.passes == usual.passes


@pytest.mark.parametrize("penalty", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_drafts_come_by_what_they_are_worth(seed, penalty):
    found = penalised_beam(TinyModel(seed, 10), start(), SETTINGS, nothing, penalty).best
    values = [worth(draft, penalty) for draft in found]
    assert values == sorted(values, reverse=True)
    assert len({draft.ids for draft in found}) == 3


def test_a_penalty_favours_long_drafts():
    short, long = Draft((1,), -2.0), Draft((1, 2, 3, 4), -4.0)
    assert worth(short, 0.0) > worth(long, 0.0)
    assert worth(short, 1.0) < worth(long, 1.0)
    assert worth(long, 0.5) == -2.0


def test_the_search_ends_with_the_limit_of_tokens():
    found = penalised_beam(TinyModel(1, 10), Start([1], lambda ids: False), SETTINGS, nothing, 1.0)
    assert found.passes == 6
    assert {len(draft.ids) for draft in found.best} == {6}
