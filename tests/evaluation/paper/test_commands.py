"""Each experiment as a person runs it, at the smallest size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from spd_lsp.cli import main


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    for n in range(3):
        functions = [f"def price_{n}_{i}(order, tax):\n    return order.total * {i} + tax\n" for i in range(60)]
        (folder / f"part_{n}.py").write_text("\n".join(functions))
    return folder


def run(*arguments: object) -> str:
    result = CliRunner().invoke(main, ["eval", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.slow
def test_an_experiment_on_code(repository: Path, tmp_path: Path) -> None:
    options = ["--examples", 1, "--prefix", 32, "--tokens", 4, "-k", 2, "--out", tmp_path]
    shown = run("perplexity", repository, *options)
    assert shown.startswith("# ")
    assert (tmp_path / "perplexity.md").read_text() in shown
    assert json.loads((tmp_path / "perplexity.json").read_text())["facts"]["model"] == "starter"


def test_linearity_needs_a_model_whose_hidden_states_can_be_read(repository: Path, tmp_path: Path) -> None:
    options = ["--examples", "1", "--prefix", "32", "--out", str(tmp_path)]
    result = CliRunner().invoke(main, ["eval", "linearity", str(repository), *options])
    assert result.exit_code == 1
    assert "name a model folder with --model" in result.output
    assert "Traceback" not in result.output


def test_a_folder_without_code_ends_in_one_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["eval", "linearity", str(tmp_path), "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "at least two are needed" in result.output
    assert "Traceback" not in result.output


def test_a_prefix_longer_than_the_model_reads_is_refused(repository: Path, tmp_path: Path) -> None:
    long = ["eval", "perplexity", str(repository), "--prefix", "900", "--tokens", "200", "--out", str(tmp_path)]
    result = CliRunner().invoke(main, long)
    assert result.exit_code == 1
    assert "starter reads 1024 tokens, but prefix and drafts take 900 + 200" in result.output
