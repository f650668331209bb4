"""What was measured is never lost and never mixed with another run's."""

from __future__ import annotations

import json

import pytest

from ngram_builders.errors import UserError
from spd_lsp.evaluation.store import Store, read_places


def test_records_come_back_and_later_ones_add_arms(tmp_path):
    path = tmp_path / "out" / "places.jsonl"
    store = Store(path, {"seed": 0})
    store.append({"key": "p", "place": {"file": "a"}, "arms": {"x": {"drafts": ["1"]}}})
    store.append({"key": "q", "arms": {}})
    again = Store(path, {"seed": 0})
    again.append({"key": "p", "arms": {"y": {"drafts": ["2"]}}})
    assert [record["key"] for record in again.records()] == ["p", "q"]
    assert again.records()[0]["arms"] == {"x": {"drafts": ["1"]}, "y": {"drafts": ["2"]}}
    assert again.records()[0]["place"] == {"file": "a"}


def test_a_line_that_was_cut_off_is_dropped(tmp_path):
    path = tmp_path / "places.jsonl"
    Store(path, {"seed": 0}).append({"key": "p"})
    with path.open("a") as file:
        file.write('{"key": "q", "arms": {"x')
    store = Store(path, {"seed": 0})
    store.append({"key": "r"})
    assert [record["key"] for record in store.records()] == ["p", "r"]


def test_results_of_another_run_are_refused(tmp_path):
    path = tmp_path / "places.jsonl"
    Store(path, {"seed": 0, "model": "starter"})
    with pytest.raises(UserError, match="seed 0 instead of 1"):
        Store(path, {"seed": 1, "model": "starter"})
    assert json.loads(path.read_text())["run"]["seed"] == 0


def test_what_is_kept_beside_the_places_is_the_last_of_its_name(tmp_path):
    store = Store(tmp_path / "places.jsonl", {})
    assert store.kept("leaks") is None
    store.append({"leaks": 1})
    store.append({"leaks": 2})
    assert store.kept("leaks") == 2


def test_a_folder_without_results_is_told(tmp_path):
    with pytest.raises(UserError, match="expected results of `spd-lsp eval quality`"):
        read_places(tmp_path / "places.jsonl")
