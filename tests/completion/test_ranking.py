"""What is likeliest to be right comes first, and what is said of it is how often that is so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.completion.postprocess import Completion
from spd_lsp.completion.ranking import FEATURES, Place, features_of, rank_by_odds
from spd_lsp.decoding.copies import Match
from spd_lsp.settings import Settings

SOURCE = "class Parser:\n    def read(self, rows):\n        return \n    def parse(self): ...\n"
CURSOR = SOURCE.index("return ") + 7
PROBABILITY = st.floats(0, 1)


def rank(*completions, source=SOURCE, cursor=CURSOR, ngrams=True, **settings):
    return rank_by_odds(completions, Place.at(source, cursor), Settings(**settings), ngrams=ngrams)


def known_of(*completions, source=SOURCE, cursor=CURSOR):
    rows = features_of(completions, Place.at(source, cursor))
    return [dict(zip(FEATURES, row, strict=True)) for row in rows]


def copy(text, length, count=1, places=1):
    return Completion(text, 0.1, is_copy=True, match=Match(length, count, places, 1))


def test_a_copy_of_a_long_match_on_which_most_agree_goes_before_an_unlikely_draft():
    drafts = [Completion("rows", 0.05), Completion("self", 0.04)]
    assert rank(*drafts, copy("rows[0]", 20, 3, 3))[0].text == "rows[0]"
    assert [one.text for one in rank(*drafts, copy("rows[0]", 2, 1, 9))] == ["rows", "self", "rows[0]"]


def test_a_likely_draft_goes_before_a_copy_of_a_short_match():
    assert rank(Completion("rows", 0.7), copy("self", 3, 2, 4))[0].text == "rows"


def test_a_draft_that_stands_elsewhere_is_more_often_right():
    plain = rank(Completion("rows", 0.2))[0].probability
    assert rank(Completion("rows", 0.2, match=Match(12, 2, 2, 1)))[0].probability > plain


@pytest.mark.parametrize("text", ["ParserParser(rows)", "read_everything(unheard_of)", "read(rows"])
def test_nonsense_is_less_often_right(text):
    assert rank(Completion(text, 0.1))[0].probability < rank(Completion("read(rows)", 0.1))[0].probability


def test_a_line_that_goes_on_is_not_all_of_it():
    cut, whole = rank(Completion("rows", 0.1, ends=False))[0], rank(Completion("rows", 0.1))[0]
    assert cut.probability < whole.probability


def test_what_is_known_of_a_text():
    [known] = known_of(Completion("newName(rows, newName", 0.5))
    assert (known["new names"], known["bracket left open"], known["cut off"], known["doubled word"]) == (
        1,
        1,
        0,
        0,
    )
    [known] = known_of(
        Completion("Parser(')')", 0.5), cursor=CURSOR - 7, source=SOURCE.replace("return", "Parser")
    )
    assert (known["new names"], known["bracket left open"]) == (0, 0)
    source = "x = Parser\nParser"
    [known] = known_of(Completion("Parser(", 0.5), cursor=len(source), source=source)
    assert known["doubled word"] == 1


def test_one_place_is_given_by_odds_the_others_in_the_decoder_s_order():
    drafts = [Completion(text, p, ends=ends) for text, p, ends in
              (("a(", 0.2, False), ("b(", 0.19, False), ("c()", 0.18, True), ("d()", 0.17, True))]  # fmt: skip
    assert [one.text for one in rank(*drafts)] == ["c()", "a(", "b(", "d()"]


def test_other_rankings_are_left_alone():
    completions = [Completion("a", 0.1), copy("b", 30, 5, 5)]
    assert rank(*completions, ranking="mean") == completions
    assert rank(*completions, interpolation="paper") == completions
    assert rank() == []


@given(st.lists(st.tuples(st.text("ab(", min_size=1, max_size=4), PROBABILITY), max_size=8), st.booleans())
def test_at_most_one_is_right_and_none_is_lost(drafts, ngrams):
    completions = [Completion(text, p) for text, p in dict(drafts).items()]
    ranked = rank(*completions, ngrams=ngrams)
    assert sorted(one.text for one in ranked) == sorted(one.text for one in completions)
    assert sum(one.probability for one in ranked) <= 1 + 1e-9
    assert not ranked or ranked[0].probability == max(one.probability for one in ranked)


@given(PROBABILITY, PROBABILITY, st.booleans())
def test_likelier_is_never_less(p, q, ngrams):
    low, high = (rank(Completion("rows", one), ngrams=ngrams)[0].probability for one in sorted((p, q)))
    assert 0 <= low <= high <= 1
