"""An unlikely draft is not shown if it holds a name of several parts that stands nowhere."""

from __future__ import annotations

import pytest

from ngram_builders.index.suffix_array import SearchedTexts, build_suffix_array
from ngram_builders.token_space import with_boundaries
from spd_lsp.completion.context import build_context
from spd_lsp.completion.draft_text import DraftText
from spd_lsp.completion.offer import OfferInputs, invents_name, make_offer
from spd_lsp.completion.ranking import WITH_NGRAMS, Completion, Match
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.decoding.superposed import DecodingResult, Draft
from spd_lsp.settings import Settings

ELSEWHERE = "class MessageType:\n    def load_rows(self):\n        return self.state_of_rows\n"


def inputs_at(tokens: ModelTokenizer, source: str, searched: list[SearchedTexts]) -> OfferInputs:
    context = build_context(source, len(source), "python", 512, tokens.count, explicit=True)
    texts = DraftText(tokens, tokens.prompt(context.before, context.after), context)
    return OfferInputs(texts, [], dict, WITH_NGRAMS, searched)


@pytest.fixture
def invents(tokens: ModelTokenizer):
    """A function from a text at the cursor and what stands left of it to whether it invents a name."""
    array = build_suffix_array([with_boundaries(tokens.encode(ELSEWHERE), tokens.end_of_text)])

    def invents(text: str, left: str = "    ", p: float = 0.05, match: Match | None = None, known: bool = True):
        inputs = inputs_at(tokens, "own_rows = 1\n" + left, [SearchedTexts(array)] if known else [])
        return invents_name(Completion(text, p, match=match), inputs)

    return invents


@pytest.mark.parametrize(
    ("text", "left", "expected"),
    [
        ("self.state_state", "    ", True),
        ("load_rowsrows()", "    ", True),
        ("sageTypes", "x = Mes", True),
        ("sageType", "x = Mes", False),  # it stands elsewhere
        ("self.load_rows()", "    ", False),
        ("state_of_rows", "    return self.", False),
        ("own_rows + 1", "    x = ", False),  # it stands in this document
        ("new_rows = 1", "    ", False),  # what defines a name may invent one
        ("new_rows: int = 1", "    ", False),
        ("new_rows(self):", "    def ", False),
        ("new_rows in own_rows:", "    for ", False),
        ("statestate", "    ", False),  # one part: a word of some language, perhaps
        ("__name__", "    ", False),
        ("new_rows == 1", "    if ", True),
    ],
)
def test_a_name_of_several_parts_that_stands_nowhere_is_invented(invents, text, left, expected):
    assert invents(text, left) is expected


def test_likely_drafts_copies_and_places_without_other_texts_are_believed(invents):
    assert not invents("new_rows", p=0.1)
    assert not invents("new_rows", match=Match(1, 1, 1, 1))
    assert not invents("new_rows", known=False)


def test_while_someone_types_a_draft_that_invents_a_name_is_shown_only_if_there_is_no_other(tokens):
    array = build_suffix_array([with_boundaries(tokens.encode(ELSEWHERE), tokens.end_of_text)])
    inputs = inputs_at(tokens, "own_rows = 1\nx = ", [SearchedTexts(array)])

    def shown(*texts: str, explicit: bool = False) -> list[str]:
        drafts = [Draft(inputs.texts.spelled(f"{text}\n"), -6.0 if "state" in text else -1.0) for text in texts]
        offer = make_offer(DecodingResult(drafts, 1, 1), inputs, Settings(min_probability=0.0), explicit=explicit)
        return [one.text for one in offer.completions if one.is_rated]

    assert shown("own_rows + 1", "state_state") == ["own_rows + 1"]
    assert shown("own_rows + 1", "state_state", explicit=True) == ["own_rows + 1", "state_state"]
    assert shown("state_state") == ["state_state"]
