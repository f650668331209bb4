"""What is chosen, what choosing is worth, and that it is kept and used."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.settings import Settings
from spd_lsp.tuning import FILE, GRID, choose, crossed, read_tuned, with_tuned, write_tuned


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
    hits = (random.random((4000, len(GRID))) < 0.2).astype(float)
    assert hits.mean(axis=0).max() > hits[:, 0].mean()
    assert abs(crossed(hits, files).mean()) < 0.03


def test_one_file_alone_judges_nothing():
    assert crossed(np.array([[0.0, 1.0]]), ["a"]).tolist() == [0.0]


def test_what_is_kept_is_used_by_its_model_where_settings_are_as_they_come(tmp_path):
    write_tuned(tmp_path / "new", "mine", {"temperature": 0.8, "candidates": 8})
    write_tuned(tmp_path / "new", "other", {"candidates": 40})
    assert with_tuned(Settings(), tmp_path / "new", "mine") == Settings(temperature=0.8, candidates=8)
    assert with_tuned(Settings(candidates=9), tmp_path / "new", "mine") == Settings(temperature=0.8, candidates=9)
    assert with_tuned(Settings(), tmp_path / "new", "third") == Settings()
    write_tuned(tmp_path / "new", "mine", {})
    assert read_tuned(tmp_path / "new", "mine") == {}
    assert read_tuned(tmp_path / "new", "other") == {"candidates": 40}
    assert [path.name for path in (tmp_path / "new").iterdir()] == [FILE]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"mine": 3}',
        '{"mine": {"temperature": "hot"}}',
        '{"mine": {"model": "x", "candidates": 0}}',
    ],
)
def test_what_cannot_be_read_counts_as_not_kept(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    assert with_tuned(Settings(), tmp_path, "mine") == Settings()


def test_what_is_tried_are_settings():
    assert GRID[0] == {}
    for way in GRID:
        Settings(**way)
