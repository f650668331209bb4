"""A completion ends once no draft goes on with what was typed since, and not before: the starter model."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spd_lsp.completion.completer import Completer, CompletionResult
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.models.checkpoint.hub import built_in_domains
from spd_lsp.models.load import load
from spd_lsp.ngrams.interpolation import Domains
from spd_lsp.settings import Settings
from tests.conftest import STARTER

SOURCES = (
    "import json\n\n\ndef load(path):\n    with open(path) as file:\n        return json",
    "import os\n\n\ndef names(path):\n    ",
    "def total(rows):\n    result = 0\n    for row in rows:\n        result += row.price\n    ret",
)


class Stopped(Exception):
    """Nothing fits."""


@pytest.fixture(scope="module")
def completer() -> Completer:
    tokens = ModelTokenizer(STARTER)
    domains = Domains(None, tokens.fingerprint, built_in_domains(STARTER))
    return Completer(load(STARTER, "cpu"), tokens, domains, Settings())


def complete(completer: Completer, source: str, typed: str) -> CompletionResult:
    """Complete where so much is typed as soon as the model computes."""

    def check_typed(fits: Callable[[str], bool]) -> None:
        if not fits(typed):
            raise Stopped

    return completer.complete(source, len(source), "python", check_typed=check_typed)


@pytest.mark.parametrize("source", SOURCES)
def test_whoever_types_a_draft_gets_it(completer: Completer, source: str):
    asked = completer.complete(source, len(source), "python")
    drafts = [draft.text for draft in asked.completions if not draft.is_name]
    assert drafts
    for draft in drafts:
        for length in range(1, len(draft) + 1):
            result = complete(completer, source, draft[:length])
            assert result.completions == asked.completions and result.passes == asked.passes


@pytest.mark.parametrize("source", SOURCES)
def test_whoever_types_what_no_draft_says_stops_it(completer: Completer, source: str):
    for typed in ("\u00fc", "?? no", "xyzzy"):
        with pytest.raises(Stopped):
            complete(completer, source, typed)
