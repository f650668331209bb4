"""`spd-lsp ngrams tune` with the starter model, on a table and folders of this project."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ngram_builders.registry.fitted_weights import read_fitted_weights
from ngram_builders.registry.registry import Registry
from spd_lsp.cli import main
from spd_lsp.commands.tune import MIN_EXAMPLES
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.completion.tuned_settings import read_order_weights, read_tuned, write_tuned
from spd_lsp.evaluation.coordinate_descent import COORDINATES, Coordinate, setting_coordinate
from spd_lsp.evaluation.tuning import arm_of
from spd_lsp.ngrams.interpolation import ORDER_WEIGHTS, Domains, expand_order_weights
from tests.conftest import STARTER

SOURCES = Path(__file__).parents[2] / "ngram_builders"
SHORT = (
    COORDINATES[0],
    COORDINATES[1],
    setting_coordinate("temperature", 0.3, None),
)  # the formula, weights, one setting


def run(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--data-dir", str(data), *arguments])


def walk_only(monkeypatch: pytest.MonkeyPatch, coordinates: tuple[Coordinate, ...]) -> None:
    monkeypatch.setattr("spd_lsp.evaluation.coordinate_descent.descend.__defaults__", (coordinates, 1))


@pytest.mark.slow
def test_the_grid_is_walked_written_down_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk_only(monkeypatch, SHORT)
    asked = ("ngrams", "tune", str(SOURCES), "--examples", str(MIN_EXAMPLES), "--out", str(tmp_path / "grid"))
    told = run(tmp_path, *asked)
    assert told.exit_code == 0, told.output
    grid = json.loads((tmp_path / "grid" / "tune.json").read_text())
    steps = {row[0] for row in grid["tables"][1]["rows"]}
    assert steps >= {"smoothing", "temperature"}
    kept = grid["data"]["kept"]
    assert read_tuned(tmp_path, "starter") == {name: kept[name] for name in kept if name != "weights"}
    assert (read_order_weights(tmp_path, "starter") is None) == ("weights" not in kept)
    assert ("nothing is kept" in told.output) == (not kept)
    before = (tmp_path / "grid" / "examples.jsonl").read_bytes()
    again = run(tmp_path, *asked)
    assert again.output == told.output
    assert (tmp_path / "grid" / "examples.jsonl").read_bytes() == before


def test_undo_goes_back_to_the_settings_as_they_come(tmp_path: Path) -> None:
    write_tuned(tmp_path, "starter", {"temperature": 0.8})
    assert run(tmp_path, "ngrams", "tune", "--undo").exit_code == 0
    assert read_tuned(tmp_path, "starter") == {}


def test_without_code_it_says_what_to_do(tmp_path: Path) -> None:
    told = run(tmp_path, "ngrams", "tune")
    assert told.exit_code == 1
    assert "name one or more" in told.output
    (tmp_path / "code").mkdir()
    for name in "ab":
        (tmp_path / "code" / f"{name}.py").write_text(
            f"def {name}(first, second):\n    return first + second\n" * 9
        )
    told = run(tmp_path / "data", "ngrams", "tune", str(tmp_path / "code"), "--out", str(tmp_path / "grid"))
    assert told.exit_code == 1
    assert "name more repositories" in told.output


def test_ways_differ_by_name_and_weights_are_no_setting() -> None:
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


def rows_used(data: Path) -> list[list[float]]:
    registry = Registry(data)
    file = Path(__file__).parents[2] / "ngram_builders" / "build.py"
    domains = Domains(registry, ModelTokenizer(STARTER).fingerprint, {}, model="starter")
    mixture = domains.mixture_for(file, "python")
    assert mixture is not None
    return mixture.order_weights.tolist()


@pytest.mark.slow
def test_what_is_fitted_serves_completions_until_it_is_undone(data: Path) -> None:
    assert rows_used(data) == expand_order_weights(ORDER_WEIGHTS).tolist()
    told = run(data, "ngrams", "tune", "mine")
    assert told.exit_code == 0
    assert "perplexity of its own files" in told.output
    fitted = read_fitted_weights(data / "mine")["starter"]
    assert rows_used(data)[1:] == [list(row) for row in fitted]
    assert run(data, "ngrams", "tune", "mine", "--undo").output == "mine: forgot its weights for starter\n"
    assert rows_used(data) == expand_order_weights(ORDER_WEIGHTS).tolist()


def test_a_table_of_little_text_is_not_fitted(data: Path) -> None:
    told = run(data, "ngrams", "tune", "small")
    assert told.exit_code == 1
    assert "was built from fewer than 500 tokens" in told.output


def test_an_unknown_table_is_named(data: Path) -> None:
    told = run(data, "ngrams", "tune", "nobody")
    assert told.exit_code == 1
    assert "no n-gram table is named 'nobody'" in told.output


@pytest.mark.slow
def test_a_dry_run_keeps_nothing(data: Path) -> None:
    told = run(data, "ngrams", "tune", "mine", "--dry-run")
    assert "perplexity of its own files" in told.output
    assert read_fitted_weights(data / "mine") == {}


def test_the_name_of_a_table_is_no_folder_even_beside_one(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)  # where each table has a folder of its name
    assert run(data, "ngrams", "tune", "mine", "--undo").output == "mine: had no weights for starter\n"


@pytest.mark.skipif(os.name != "posix", reason="permissions are others'")
def test_what_holds_pieces_of_the_code_is_written_for_the_user_alone_and_not_into_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk_only(monkeypatch, ())
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "code").mkdir()
    for name in "abcdefghijkl":
        lines = [f"def {name}_{n}(first, second):\n    return first.part(second, {n})\n\n" for n in range(9)]
        (tmp_path / "code" / f"{name}.py").write_text("\n".join(lines))
    asked = ("ngrams", "tune", str(tmp_path / "code"), "--examples", str(MIN_EXAMPLES), "--dry-run")
    told = run(tmp_path / "data", *asked)
    assert told.exit_code == 0, told.output
    assert [*(tmp_path / "cwd").iterdir()] == []
    [folder] = (tmp_path / "state" / "spd-lsp" / "tune").iterdir()
    assert folder.name.startswith("code-")
    assert str(folder / "tune.md") in told.output.replace("\n", "")
    for path in [folder, *folder.iterdir()]:
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize("command", [["ngrams", "tune"], ["eval", "quality"], ["eval", "perplexity"]])
def test_results_are_the_user_s_unless_a_folder_is_named(command: list[str]) -> None:
    said = CliRunner().invoke(main, [*command, "--help"]).output
    assert "the user's folder for results" in " ".join(said.split())
