"""Editors that share an engine are all answered, and a pass reads what several of them wait for."""

from __future__ import annotations

from itertools import pairwise

import pytest

from spd_lsp.evaluation.bench.editors import _REQUESTS, SHARED_DECODERS, time_editors, typed_prompts
from spd_lsp.evaluation.bench.prefixes import TYPED_TOKENS
from spd_lsp.evaluation.bench.setup import BenchOptions, prepare
from tests.conftest import STARTER

IDS = tuple(range(100, 160))


def test_an_editors_prompts_grow_by_what_is_typed_and_begin_alike_in_every_round():
    first, second = (list(typed_prompts(IDS, 3, number)) for number in (1, 2))
    assert [len(prompt) for prompt in first] == [
        len(IDS) + TYPED_TOKENS * (n - _REQUESTS + 1) for n in range(_REQUESTS)
    ]
    assert all(later[: len(prompt)] == prompt for prompt, later in pairwise(first))
    begins = len(IDS) - _REQUESTS * TYPED_TOKENS
    assert first[0][:begins] == second[0][:begins]
    assert first[0][begins:] != second[0][begins:]


def test_editors_have_different_texts():
    assert next(typed_prompts(IDS, 0, 1))[:5] != next(typed_prompts(IDS, 1, 1))[:5]


@pytest.mark.slow
def test_all_are_answered_and_read_together():
    options = BenchOptions(STARTER, "starter", "cpu", "x = len(items)\n" * 40, (3,), 3, 1, 1, False)
    setup = prepare(options, ["engine"])
    reported = []
    found = time_editors(setup, (1, 4), 2, lambda what, done, all_: reported.append((done, all_)))
    assert set(found) == {(name, count) for name in SHARED_DECODERS for count in (1, 4)}
    assert {len(rounds) for rounds in found.values()} == {2}
    assert all(one.completions == 4 * _REQUESTS for one in found["superposed", 4])
    assert found["superposed", 1][0].requests_per_pass == pytest.approx(1)
    assert found["superposed", 4][0].requests_per_pass > 1
    assert reported[-1] == (30, 30)
