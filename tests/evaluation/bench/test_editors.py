"""Editors that share an engine are all answered, and a pass reads what several of them wait for."""

from __future__ import annotations

from itertools import pairwise

import pytest

from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.bench.editors import ASKING, REQUESTS, serve, typing
from spd_lsp.evaluation.bench.prefixes import TYPED
from spd_lsp.evaluation.bench.session import Asked, prepare
from tests.conftest import STARTER

IDS = tuple(range(100, 160))


def test_an_editors_prompts_grow_by_what_is_typed_and_begin_alike_in_every_round():
    first, second = (list(typing(IDS, 3, number)) for number in (1, 2))
    assert [len(prompt) for prompt in first] == [len(IDS) + TYPED * (n - REQUESTS + 1) for n in range(REQUESTS)]
    assert all(later[: len(prompt)] == prompt for prompt, later in pairwise(first))
    begins = len(IDS) - REQUESTS * TYPED
    assert first[0][:begins] == second[0][:begins]
    assert first[0][begins:] != second[0][begins:]


def test_editors_have_different_texts():
    assert next(typing(IDS, 0, 1))[:5] != next(typing(IDS, 1, 1))[:5]


@pytest.mark.slow
def test_all_are_answered_and_read_together():
    asked = Asked(STARTER, "starter", "cpu", "x = len(items)\n" * 40, (3,), 3, 1, 1, False)
    contest = prepare(asked, ModelTokenizer(STARTER), ["engine"])
    told = []
    found = serve(contest, (1, 4), 2, lambda what, done, all_: told.append((done, all_)))
    assert set(found) == {(name, count) for name in ASKING for count in (1, 4)}
    assert {len(rounds) for rounds in found.values()} == {2}
    assert all(one.completions == 4 * REQUESTS for one in found["superposed", 4])
    assert found["superposed", 1][0].together == pytest.approx(1)
    assert found["superposed", 4][0].together > 1
    assert told[-1] == (30, 30)
