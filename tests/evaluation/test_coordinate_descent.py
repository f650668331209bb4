"""What is chosen, and what choosing gains."""

from __future__ import annotations

import numpy as np

from spd_lsp.completion.tuned_settings import ORDER_WEIGHTS, TUNABLE
from spd_lsp.evaluation.coordinate_descent import (
    COORDINATES,
    GLANCE,
    choose,
    crossed,
    descend,
    threshold,
    values,
)
from spd_lsp.settings import Settings


def test_the_way_that_completes_most_is_chosen_and_the_first_if_none_does():
    assert choose(np.array([[0.0, 1.0, 1.0], [1.0, 1.0, 0.0]])) == 1
    assert choose(np.array([[1.0, 1.0], [0.0, 0.0]])) == 0


def test_each_half_of_the_files_is_judged_by_the_choice_of_the_other():
    files = ["a", "a", "b", "b"]
    hits = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    # By a the second way is chosen, which loses one place of b; by b the first one, which gains nothing.
    assert crossed(hits, files).tolist() == [0.0, 0.0, -1.0, 0.0]


def test_choosing_among_ways_that_differ_by_chance_is_worth_nothing():
    random = np.random.default_rng(0)
    files = [str(i // 2) for i in range(4000)]
    hits = (random.random((4000, 6)) < 0.2).astype(float)
    assert hits.mean(axis=0).max() > hits[:, 0].mean()
    assert abs(crossed(hits, files).mean()) < 0.03


def test_one_file_alone_judges_nothing():
    assert crossed(np.array([[0.0, 1.0]]), ["a"]).tolist() == [0.0]


def test_what_is_tried_are_settings():
    for coordinate in COORDINATES:
        for value in coordinate.values:
            Settings(**{name: one for name, one in value.items() if one is not None and name != "weights"})
            assert value.keys() <= TUNABLE | {ORDER_WEIGHTS}


def test_a_walk_goes_uphill_one_coordinate_at_a_time_and_stops_where_nothing_gains():
    asked = []

    def score(ways):
        asked.extend(ways)
        return [(-abs(way.get("temperature", 1.0) - 0.6), -way.get("candidates", 20)) for way in ways]

    coordinates = (values("temperature", 0.3, 0.6, None), values("candidates", 8, None, 40))
    walk = descend(score, coordinates)
    assert walk.best == {"temperature": 0.6, "candidates": 8}
    assert [step.coordinate for step in walk.steps] == ["temperature", "candidates"] * 2
    assert walk.steps[0].ways[walk.steps[0].kept] == {"temperature": 0.6}
    assert walk.tried[0] == {}
    assert all(way in walk.tried for way in asked)
    assert len(walk.tried) == len({str(way) for way in walk.tried})


def test_what_only_equals_the_settings_that_stand_is_not_taken():
    assert descend(lambda ways: [(0.5, 0.1)] * len(ways)).best == {}


def test_alpha_is_walked_with_the_paper_s_formula_only_and_trust_without_it():
    def names(best):
        walk = descend(lambda ways: [(float(best in str(way)),) for way in ways], rounds=1)
        return {step.coordinate for step in walk.steps}

    assert "alpha" not in names("nothing") and "ngram_weight" in names("nothing")
    assert "alpha" in names("paper") and "ngram_weight" not in names("paper")


def test_the_threshold_leaves_out_what_costs_more_than_it_saves():
    said = np.array([0.9, 0.5, 0.3, 0.01, 0.01])
    characters = np.full(5, 5.0)
    assert threshold(said, np.array([1.0, 0.0, 1.0, 0.0, 0.0]), characters) == 0.3
    assert threshold(said, np.array([1.0, 0.0, 1.0, 0.0, 1.0]), characters) == 0
    assert threshold(said[:0], said[:0], said[:0]) == 0
    assert GLANCE < 1
