"""What was tuned is kept, and replaces defaults."""

from __future__ import annotations

import os

import pytest

from spd_lsp.ngrams.tuned_settings import TUNED_FILE, apply_tuned, read_order_weights, read_tuned, write_tuned
from spd_lsp.settings import Settings


def test_what_is_kept_is_used_by_its_model_where_settings_are_as_they_come(tmp_path):
    write_tuned(tmp_path / "new", "mine", {"temperature": 0.8, "candidates": 8})
    write_tuned(tmp_path / "new", "other", {"candidates": 40})
    assert apply_tuned(Settings(), tmp_path / "new", "mine") == Settings(temperature=0.8, candidates=8)
    assert apply_tuned(Settings(candidates=9), tmp_path / "new", "mine") == Settings(temperature=0.8, candidates=9)
    assert apply_tuned(Settings(), tmp_path / "new", "third") == Settings()
    write_tuned(tmp_path / "new", "mine", {})
    assert read_tuned(tmp_path / "new", "mine") == {}
    assert read_tuned(tmp_path / "new", "other") == {"candidates": 40}
    assert [path.name for path in (tmp_path / "new").iterdir()] == [TUNED_FILE]


@pytest.mark.skipif(os.name != "posix", reason="rights of folders are POSIX's")
def test_a_registry_that_tuning_made_is_its_owners_alone(tmp_path):
    write_tuned(tmp_path / "new", "mine", {"candidates": 8})
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


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
    (tmp_path / TUNED_FILE).write_text(text)
    assert apply_tuned(Settings(), tmp_path, "mine") == Settings()


def test_weights_are_kept_beside_settings_and_are_none_of_them(tmp_path):
    write_tuned(tmp_path, "mine", {"temperature": 0.8, "weights": [[0.1], [0.2, 0.3]]})
    assert read_order_weights(tmp_path, "mine") == ((0.1,), (0.2, 0.3))
    assert read_tuned(tmp_path, "mine") == {"temperature": 0.8}
    for broken in ([[2.0]], [[-1]], "rows", [["x"]], [[0.1], 3], []):
        write_tuned(tmp_path, "mine", {"weights": broken, "temperature": 1.0})
        assert read_order_weights(tmp_path, "mine") is None


def test_what_suits_one_formula_is_not_used_with_the_other(tmp_path):
    write_tuned(tmp_path, "mine", {"temperature": 0.8})
    assert apply_tuned(Settings(interpolation="paper"), tmp_path, "mine") == Settings(interpolation="paper")
    paper = {"interpolation": "paper", "temperature": 0.06, "candidates": 9, "ranking": "mean"}
    write_tuned(tmp_path, "mine", paper)
    assert apply_tuned(Settings(), tmp_path, "mine") == Settings(**paper)
    assert apply_tuned(Settings(interpolation="paper"), tmp_path, "mine") == Settings(**paper)
