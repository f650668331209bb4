"""Long completions that begin again from one of their drafts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.decoding.superposed import superpose
from spd_lsp.evaluation.paper.drafting import DEFAULTS, DraftWriter
from spd_lsp.evaluation.paper.passages import Passage
from spd_lsp.evaluation.paper.resets import _INTERVALS, _METHODS, write_with_sampled_resets
from spd_lsp.models.load import load
from tests.conftest import STARTER

CODE = "import os\n\n\ndef read(path):\n    with open(path) as file:\n        return file.read()\n\n\n"


@pytest.fixture(scope="module")
def writer() -> DraftWriter:
    return DraftWriter(load(STARTER, "cpu"), ModelTokenizer(STARTER), {})


@pytest.fixture(scope="module")
def passage(writer: DraftWriter) -> Passage:
    ids = tuple(writer.tokens.encode(CODE * 3))
    return Passage("r", "f.py", ids, 30)


def test_each_stretch_is_one_of_the_drafts_that_begin_there(writer: DraftWriter, passage: Passage) -> None:
    found = write_with_sampled_resets(writer, passage, replace(DEFAULTS, drafts=3), prefix=24, tokens=12, every=5)
    assert len(found) == 12
    start = writer.start(passage, 24, ngrams=True)
    for at, length in ((0, 5), (5, 5), (10, 2)):
        begun = start.continued_by(tuple(found[:at])) if at else start
        drafts = superpose(writer.model, begun, replace(DEFAULTS, drafts=3, max_tokens=length)).best
        assert tuple(found[at : at + length]) in {draft.ids for draft in drafts}


def test_the_same_place_gives_the_same_text(writer: DraftWriter, passage: Passage) -> None:
    size = {"prefix": 24, "tokens": 8, "every": 4}
    assert write_with_sampled_resets(writer, passage, DEFAULTS, **size) == write_with_sampled_resets(
        writer, passage, DEFAULTS, **size
    )


def test_every_reset_is_compared_with_none() -> None:
    resets = {method.settings.reset_every for method in _METHODS if method.decoder == "superposed"}
    assert resets == set(_INTERVALS)
    assert 0 in resets
