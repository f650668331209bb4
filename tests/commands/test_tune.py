"""`spd-lsp ngrams tune` with the starter model, on a table of this project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ngram_builders.registry.fitted_weights import read_fitted_weights
from ngram_builders.registry.registry import Registry
from ngram_builders.table.order_weights import expand_order_weights
from spd_lsp.cli import main
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.ngrams.mixture import ORDER_WEIGHTS
from spd_lsp.ngrams.serving_tables import ServingTables
from tests.conftest import STARTER


def run(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--data-dir", str(data), *arguments])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fit")
    sources = Path(__file__).parents[2] / "ngram_builders"
    assert run(folder / "data", "build-ngrams", str(sources), "--name", "mine").exit_code == 0
    (folder / "small").mkdir()
    (folder / "small" / "a.py").write_text("x = 1\n")
    assert run(folder / "data", "build-ngrams", str(folder / "small")).exit_code == 0
    return folder / "data"


def order_weights_of(data: Path) -> list[list[float]]:
    registry = Registry(data)
    file = Path(__file__).parents[2] / "ngram_builders" / "build.py"
    tables = ServingTables(registry, ModelTokenizer(STARTER).fingerprint, {}, model="starter")
    mixture = tables.mixture_for(file, "python")
    assert mixture is not None
    return mixture.order_weights[0].tolist()


@pytest.mark.slow
def test_fitted_weights_are_used_until_they_are_undone(data: Path) -> None:
    assert order_weights_of(data) == expand_order_weights(ORDER_WEIGHTS).tolist()
    result = run(data, "ngrams", "tune", "mine")
    assert result.exit_code == 0
    assert "perplexity of its own files" in result.output
    assert re.search(
        r"where the table knows 5 tokens of context, n-grams now weigh \d+%, where it knows one, \d+%",
        result.output,
    )
    fitted = read_fitted_weights(data / "mine")["starter"]
    assert order_weights_of(data)[1:] == [list(row) for row in fitted]
    assert run(data, "ngrams", "tune", "mine", "--undo").output == "mine: forgot its weights for starter\n"
    assert run(data, "ngrams", "tune", "mine", "--undo").output == "mine: had no weights for starter\n"
    assert order_weights_of(data) == expand_order_weights(ORDER_WEIGHTS).tolist()


def test_a_table_with_little_text_is_not_fitted(data: Path) -> None:
    result = run(data, "ngrams", "tune", "small")
    assert result.exit_code == 1
    assert "was built from fewer than 500 tokens" in result.output
