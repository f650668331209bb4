"""`spd-lsp ngrams tune` with the starter model, on a table and folders of this project."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ngram_builders.registry.fitted_weights import read_fitted_weights
from ngram_builders.registry.registry import Registry
from ngram_builders.table.order_weights import expand_order_weights
from spd_lsp.cli import main
from spd_lsp.commands.tune import MIN_EXAMPLES
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.coordinate_descent import COORDINATES, Coordinate, setting_coordinate
from spd_lsp.evaluation.tuning import arm_of
from spd_lsp.ngrams.interpolation import ORDER_WEIGHTS, Domains
from spd_lsp.ngrams.tuned_settings import read_order_weights, read_tuned, write_tuned
from tests.conftest import STARTER

SOURCES = Path(__file__).parents[2] / "ngram_builders"
SHORT_GRID = (  # the formula, weights, one setting
    COORDINATES[0],
    COORDINATES[1],
    setting_coordinate("temperature", 0.3, None),
)


def run(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--data-dir", str(data), *arguments])


def search_only(monkeypatch: pytest.MonkeyPatch, coordinates: tuple[Coordinate, ...]) -> None:
    monkeypatch.setattr("spd_lsp.evaluation.coordinate_descent.descend.__defaults__", (coordinates, 1))


@pytest.mark.slow
def test_the_grid_is_searched_recorded_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search_only(monkeypatch, SHORT_GRID)
    command = ("ngrams", "tune", str(SOURCES), "--examples", str(MIN_EXAMPLES), "--out", str(tmp_path / "grid"))
    result = run(tmp_path, *command)
    assert result.exit_code == 0, result.output
    grid = json.loads((tmp_path / "grid" / "tune.json").read_text())
    steps = {row[0] for row in grid["tables"][1]["rows"]}
    assert steps >= {"smoothing", "temperature"}
    kept = grid["data"]["kept"]
    assert read_tuned(tmp_path, "starter") == {name: kept[name] for name in kept if name != "weights"}
    assert (read_order_weights(tmp_path, "starter") is None) == ("weights" not in kept)
    assert ("nothing is kept" in result.output) == (not kept)
    before = (tmp_path / "grid" / "examples.jsonl").read_bytes()
    again = run(tmp_path, *command)
    assert again.output == result.output
    assert (tmp_path / "grid" / "examples.jsonl").read_bytes() == before


def test_undo_restores_the_default_settings(tmp_path: Path) -> None:
    write_tuned(tmp_path, "starter", {"temperature": 0.8})
    assert run(tmp_path, "ngrams", "tune", "--undo").exit_code == 0
    assert read_tuned(tmp_path, "starter") == {}


def test_without_code_the_error_names_the_remedy(tmp_path: Path) -> None:
    result = run(tmp_path, "ngrams", "tune")
    assert result.exit_code == 1
    assert "name one or more" in result.output
    (tmp_path / "code").mkdir()
    for name in "ab":
        (tmp_path / "code" / f"{name}.py").write_text(
            f"def {name}(first, second):\n    return first + second\n" * 9
        )
    result = run(tmp_path / "data", "ngrams", "tune", str(tmp_path / "code"), "--out", str(tmp_path / "grid"))
    assert result.exit_code == 1
    assert "name more repositories" in result.output


def test_methods_have_different_names_and_weights_are_not_a_setting() -> None:
    assert arm_of({}).label == "superposed@repository+file"
    way = arm_of({"temperature": 0.8, "weights": "fitted"})
    assert way.label == "superposed:temperature=0.8:weights=fitted@repository+file"
    assert way.settings == {"temperature": 0.8}


# --- a table --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fit")
    sources = Path(__file__).parents[2] / "ngram_builders"
    assert run(folder / "data", "build-ngrams", str(sources), "--domain", "mine").exit_code == 0
    (folder / "small").mkdir()
    (folder / "small" / "a.py").write_text("x = 1\n")
    assert run(folder / "data", "build-ngrams", str(folder / "small")).exit_code == 0
    return folder / "data"


def order_weights_of(data: Path) -> list[list[float]]:
    registry = Registry(data)
    file = Path(__file__).parents[2] / "ngram_builders" / "build.py"
    domains = Domains(registry, ModelTokenizer(STARTER).fingerprint, {}, model="starter")
    mixture = domains.mixture_for(file, "python")
    assert mixture is not None
    return mixture.order_weights[0].tolist()


@pytest.mark.slow
def test_fitted_weights_are_used_until_they_are_undone(data: Path) -> None:
    assert order_weights_of(data) == expand_order_weights(ORDER_WEIGHTS).tolist()
    result = run(data, "ngrams", "tune", "mine")
    assert result.exit_code == 0
    assert "perplexity of its own files" in result.output
    assert re.search(r"trust the n-grams by \d+% where 5 tokens .* known, by \d+% where one is", result.output)
    fitted = read_fitted_weights(data / "mine")["starter"]
    assert order_weights_of(data)[1:] == [list(row) for row in fitted]
    assert run(data, "ngrams", "tune", "mine", "--undo").output == "mine: forgot its weights for starter\n"
    assert order_weights_of(data) == expand_order_weights(ORDER_WEIGHTS).tolist()


def test_a_table_with_little_text_is_not_fitted(data: Path) -> None:
    result = run(data, "ngrams", "tune", "small")
    assert result.exit_code == 1
    assert "was built from fewer than 500 tokens" in result.output


def test_an_unknown_table_is_reported(data: Path) -> None:
    result = run(data, "ngrams", "tune", "nobody")
    assert result.exit_code == 1
    assert "no n-gram table is named 'nobody'" in result.output


@pytest.mark.slow
def test_a_dry_run_keeps_nothing(data: Path) -> None:
    result = run(data, "ngrams", "tune", "mine", "--dry-run")
    assert "perplexity of its own files" in result.output
    assert re.search(r"trust the n-grams by \d+% where 5 tokens .* known, by \d+% where one is", result.output)
    assert read_fitted_weights(data / "mine") == {}


def test_a_tables_name_is_not_taken_for_a_folder_of_that_name(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)  # where each table has a folder with its name
    assert run(data, "ngrams", "tune", "mine", "--undo").output == "mine: had no weights for starter\n"


@pytest.mark.skipif(os.name != "posix", reason="permissions are others'")
def test_results_that_quote_code_are_private_and_not_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search_only(monkeypatch, ())
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "code").mkdir()
    for name in "abcdefghijkl":
        lines = [f"def {name}_{n}(first, second):\n    return first.part(second, {n})\n\n" for n in range(9)]
        (tmp_path / "code" / f"{name}.py").write_text("\n".join(lines))
    command = ("ngrams", "tune", str(tmp_path / "code"), "--examples", str(MIN_EXAMPLES), "--dry-run")
    result = run(tmp_path / "data", *command)
    assert result.exit_code == 0, result.output
    assert [*(tmp_path / "cwd").iterdir()] == []
    [folder] = (tmp_path / "state" / "spd-lsp" / "tune").iterdir()
    assert folder.name.startswith("code-")
    assert str(folder / "tune.md") in result.output.replace("\n", "")
    for path in [folder, *folder.iterdir()]:
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize("command", [["ngrams", "tune"], ["eval", "quality"], ["eval", "perplexity"]])
def test_results_are_private_unless_a_folder_is_named(command: list[str]) -> None:
    output = CliRunner().invoke(main, [*command, "--help"]).output
    assert "the user's folder for results" in " ".join(output.split())
