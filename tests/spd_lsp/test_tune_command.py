"""`spd-lsp tune` with the starter model, on sources of this project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from spd_lsp.cli import main
from spd_lsp.evaluation.walk import arm_of
from spd_lsp.tune_command import FEWEST
from spd_lsp.tuning import COORDINATES, Coordinate, read_tuned, read_weights, values, write_tuned

SOURCES = Path(__file__).parents[2] / "ngram_builders"
SHORT = (COORDINATES[0], COORDINATES[1], values("temperature", 0.3, None))  # the formula, weights, one setting


def run(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--data-dir", str(data), "tune", *arguments])


def walk_only(monkeypatch: pytest.MonkeyPatch, coordinates: tuple[Coordinate, ...]) -> None:
    monkeypatch.setattr("spd_lsp.tuning.descend.__defaults__", (coordinates, 1))


def test_the_grid_is_walked_written_down_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk_only(monkeypatch, SHORT)
    asked = (str(SOURCES), "--places", str(FEWEST), "--out", str(tmp_path / "grid"))
    told = run(tmp_path, *asked)
    assert told.exit_code == 0, told.output
    grid = json.loads((tmp_path / "grid" / "tune.json").read_text())
    steps = {row[0] for row in grid["tables"][1]["rows"]}
    assert steps >= {"smoothing", "temperature"}
    kept = grid["data"]["kept"]
    assert read_tuned(tmp_path, "starter") == {name: kept[name] for name in kept if name != "weights"}
    assert (read_weights(tmp_path, "starter") is None) == ("weights" not in kept)
    assert ("nothing is kept" in told.output) == (not kept)
    before = (tmp_path / "grid" / "places.jsonl").read_bytes()
    again = run(tmp_path, *asked)
    assert again.output == told.output
    assert (tmp_path / "grid" / "places.jsonl").read_bytes() == before


def test_undo_goes_back_to_the_settings_as_they_come(tmp_path: Path) -> None:
    write_tuned(tmp_path, "starter", {"temperature": 0.8})
    assert run(tmp_path, "--undo").exit_code == 0
    assert read_tuned(tmp_path, "starter") == {}


def test_without_code_it_says_what_to_do(tmp_path: Path) -> None:
    told = run(tmp_path)
    assert told.exit_code == 1
    assert "name one or more folders" in told.output
    (tmp_path / "code").mkdir()
    for name in "ab":
        (tmp_path / "code" / f"{name}.py").write_text(
            f"def {name}(first, second):\n    return first + second\n" * 9
        )
    told = run(tmp_path / "data", str(tmp_path / "code"), "--out", str(tmp_path / "grid"))
    assert told.exit_code == 1
    assert "name more repositories" in told.output


def test_ways_differ_by_name_and_weights_are_no_setting() -> None:
    assert arm_of({}).label == "superposed@repository+file"
    way = arm_of({"temperature": 0.8, "weights": "fitted"})
    assert way.label == "superposed:temperature=0.8:weights=fitted@repository+file"
    assert way.settings == {"temperature": 0.8}
