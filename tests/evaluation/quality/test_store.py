"""What was measured is never lost and never mixed with another run's."""

from __future__ import annotations

import json

import pytest

from ngram_builders.errors import UserError
from spd_lsp.evaluation.quality.store import ResultStore, read_results


def test_records_come_back_and_later_ones_add_arms(tmp_path):
    path = tmp_path / "out"
    store = ResultStore(path, {"seed": 0})
    store.append({"key": "p", "example": {"file": "a"}, "arms": {"x": {"drafts": ["1"]}}})
    store.append({"key": "q", "arms": {}})
    again = ResultStore(path, {"seed": 0})
    again.append({"key": "p", "arms": {"y": {"drafts": ["2"]}}})
    assert [record["key"] for record in again.records()] == ["p", "q"]
    assert again.records()[0]["arms"] == {"x": {"drafts": ["1"]}, "y": {"drafts": ["2"]}}
    assert again.records()[0]["example"] == {"file": "a"}


def test_a_line_that_was_cut_off_is_dropped(tmp_path):
    path = tmp_path
    ResultStore(path, {"seed": 0}).append({"key": "p"})
    with (path / "examples.jsonl").open("a") as file:
        file.write('{"key": "q", "arms": {"x')
    store = ResultStore(path, {"seed": 0})
    store.append({"key": "r"})
    assert [record["key"] for record in store.records()] == ["p", "r"]


def test_results_of_another_run_are_refused(tmp_path):
    path = tmp_path
    ResultStore(path, {"seed": 0, "model": "starter"})
    with pytest.raises(UserError, match="seed 0 instead of 1"):
        ResultStore(path, {"seed": 1, "model": "starter"})
    assert json.loads((path / "examples.jsonl").read_text())["run"]["seed"] == 0


def test_a_folder_without_results_is_told(tmp_path):
    with pytest.raises(UserError, match="no results of `spd-lsp eval quality`"):
        read_results(tmp_path)
