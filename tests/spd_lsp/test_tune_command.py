"""`spd-lsp tune` with the starter model, on sources of this project."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from spd_lsp.cli import main
from spd_lsp.tune_command import FEWEST, as_arm
from spd_lsp.tuning import GRID, read_tuned, write_tuned

SOURCES = Path(__file__).parents[2] / "ngram_builders"


def run(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--data-dir", str(data), "tune", *arguments])


def test_all_ways_are_tried_and_the_best_is_kept_if_choosing_gains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spd_lsp.tuning.GRID", GRID[:2])
    told = run(tmp_path, str(SOURCES), "--places", str(FEWEST))
    assert told.exit_code == 0, told.output
    assert told.output.count(" %  ") == 2
    kept = read_tuned(tmp_path, "starter")
    assert kept in GRID
    assert ("nothing is kept" in told.output) == (kept == {})


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
    told = run(tmp_path / "data", str(tmp_path / "code"))
    assert told.exit_code == 1
    assert "name more repositories" in told.output


def test_ways_are_written_as_the_evaluation_reads_them() -> None:
    assert as_arm({}) == "superposed"
    assert as_arm({"temperature": 0.8}) == "superposed:temperature=0.8"
