"""Coordinate descent takes the best value of one setting after the other."""

from __future__ import annotations

from spd_lsp.evaluation.coordinate_descent import COORDINATES, descend, setting_coordinate
from spd_lsp.ngrams.tuned_settings import TUNABLE, WEIGHTS_KEY
from spd_lsp.settings import Settings


def test_what_is_tried_are_settings():
    for coordinate in COORDINATES:
        for value in coordinate.changes:
            Settings(**{name: one for name, one in value.items() if one is not None and name != "weights"})
            assert value.keys() <= TUNABLE | {WEIGHTS_KEY}


def test_a_walk_goes_uphill_one_coordinate_at_a_time_and_stops_where_nothing_gains():
    asked = []

    def score(ways):
        asked.extend(ways)
        return [(-abs(way.get("temperature", 1.0) - 0.6), -way.get("candidates", 20)) for way in ways]

    coordinates = (
        setting_coordinate("temperature", 0.3, 0.6, None),
        setting_coordinate("candidates", 8, None, 40),
    )
    search = descend(score, coordinates)
    assert search.best == {"temperature": 0.6, "candidates": 8}
    assert [step.coordinate for step in search.steps] == ["temperature", "candidates"] * 2
    assert search.steps[0].tried[search.steps[0].best] == {"temperature": 0.6}
    assert search.tried[0] == {}
    assert all(way in search.tried for way in asked)
    assert len(search.tried) == len({str(way) for way in search.tried})


def test_what_only_equals_the_settings_that_stand_is_not_taken():
    assert descend(lambda ways: [(0.5, 0.1)] * len(ways)).best == {}


def test_alpha_is_walked_with_the_paper_s_formula_only_and_trust_without_it():
    def names(best):
        search = descend(lambda ways: [(float(best in str(way)),) for way in ways], rounds=1)
        return {step.coordinate for step in search.steps}

    assert "alpha" not in names("nothing") and "ngram_weight" in names("nothing")
    assert "alpha" in names("paper") and "ngram_weight" not in names("paper")
