"""Coverage by what was paid for."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.paper.coverage import (
    FINISHES,
    added_text,
    coverage_at,
    measure,
    rest_of_line_ids,
    summarise,
)
from spd_lsp.evaluation.paper.drafting import DraftWriter
from spd_lsp.evaluation.paper.passages import Passage
from spd_lsp.models.load import load
from tests.conftest import STARTER

CODE = "import os\n\n\ndef read(path):\n    with open(path) as file:\n        return file.read()\n\n\n"


@pytest.fixture(scope="module")
def tokens() -> ModelTokenizer:
    return ModelTokenizer(STARTER)


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.data())
def test_coverage_is_the_mean_over_all_choices(right: list[bool], data: st.DataObject) -> None:
    n = data.draw(st.integers(1, len(right)))
    chosen = [any(one) for one in combinations(right, n)]
    assert coverage_at(sum(right), len(right), n) == pytest.approx(sum(chosen) / len(chosen))


def test_what_follows_on_the_line(tokens: ModelTokenizer) -> None:
    at = len(tokens.encode(CODE[: CODE.index("as file")]))
    passage = Passage("r", "f.py", tuple(tokens.encode(CODE)), at)
    line = rest_of_line_ids(tokens, passage, 24)
    assert line is not None
    assert CODE.splitlines()[4].endswith(line)
    assert rest_of_line_ids(tokens, passage, 1) is None  # it does not end so soon
    assert added_text(tokens, tokens.encode(" as file:  \n        return")) == " as file:"


def test_samples_and_their_finishes_cost_alike(tokens: ModelTokenizer) -> None:
    at = len(tokens.encode(CODE[: CODE.index("as file")]))
    passage = Passage("r", "f.py", tuple(tokens.encode(CODE)), at)
    writer = DraftWriter(load(STARTER, "cpu"), tokens, {})
    found = measure(writer, passage, " as file:", prefix=32, tokens=12, budgets=(1, 4))
    assert len(found) == 2 * len(FINISHES)
    for values in found.values():
        one, four, passes = values
        assert 0 <= one <= four <= 1
        assert 1 <= passes <= 12
    text = summarise([found, found], [("r", "a"), ("r", "b")], {"model": "starter"}, (1, 4)).markdown()
    assert "nucleus then SPD-3, linear n-grams" in text
