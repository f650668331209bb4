"""`ngrams fit`, with the starter model on sources of this project; completions then use what was fitted."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ngram_builders.fits import read_fits
from ngram_builders.registry import Registry
from spd_lsp.cli import main
from spd_lsp.interpolation import ROWS, Domains, whole_rows
from spd_lsp.tokens import Tokens
from tests.conftest import STARTER


def run(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--data-dir", str(data), *arguments], catch_exceptions=False)


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
    domains = Domains(registry, Tokens(STARTER).fingerprint, {}, model="starter")
    mixture = domains.serving(file, "python")
    assert mixture is not None
    return mixture.rows.tolist()


def test_what_is_fitted_serves_completions_until_it_is_undone(data: Path) -> None:
    assert rows_used(data) == whole_rows(ROWS).tolist()
    told = run(data, "ngrams", "fit", "mine")
    assert told.exit_code == 0
    assert "perplexity of its own files" in told.output
    fitted = read_fits(data / "mine")["starter"]
    assert rows_used(data)[1:] == [list(row) for row in fitted]
    assert run(data, "ngrams", "fit", "mine", "--undo").output == "mine: forgot its weights for starter\n"
    assert rows_used(data) == whole_rows(ROWS).tolist()


def test_a_table_of_little_text_is_not_fitted(data: Path) -> None:
    told = run(data, "ngrams", "fit", "small")
    assert told.exit_code == 1
    assert "found less; run: spd-lsp build-ngrams REPO --domain small" in told.output


def test_an_unknown_table_is_named(data: Path) -> None:
    told = run(data, "ngrams", "fit", "nobody")
    assert told.exit_code == 1
    assert "expected a known n-gram domain, found 'nobody'" in told.output
