"""The steps run in order and once, and a missing input is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ngram_builders.errors import UserError
from spd_lsp.training import selection
from spd_lsp.training.__main__ import main
from spd_lsp.training.corpus.gather import CORPUS_LANGUAGES
from spd_lsp.training.gguf_weights import read_model
from spd_lsp.training.recipe import (
    Recipe,
    make_base,
    make_ngrams,
    make_rows,
    make_starter,
    make_weights,
    record_plan,
)
from spd_lsp.training.train import TrainingPlan
from tests.training.base_files import write_published


@pytest.fixture(scope="module")
def more_held_out_files() -> Iterator[None]:
    """Hold out a quarter of the files: there are few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "HELD_OUT", 64)
        yield


@pytest.fixture(scope="module")
def encoded_once(
    sources: list[str],
    manifest: list[dict[str, Any]],
    more_held_out_files: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A work folder after the steps corpus, base and rows."""
    pytest.importorskip("xllamacpp")
    work = tmp_path_factory.mktemp("encoded")
    long = [text[:3000] for text in sources if len(text) >= 3000]  # held-out files have to fill rows
    for number in range(150):
        path = work / "corpus" / CORPUS_LANGUAGES[number % 2] / f"package{number % 3}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(long[number % len(long)])
    (work / "corpus" / "sources.json").write_text(json.dumps(manifest))
    write_published(sources, work / "published.gguf")
    make_base(recipe_in(work), work / "published.gguf")
    make_rows(recipe_in(work))
    return work


def recipe_in(work: Path) -> Recipe:
    return Recipe(work=work, vocabulary=500, length=300)


@pytest.fixture
def encoded(encoded_once: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return shutil.copytree(encoded_once, tmp_path, dirs_exist_ok=True)


@pytest.mark.slow
def test_the_steps_lead_from_a_published_model_to_the_bundled_one(encoded: Path) -> None:
    make = recipe_in(encoded)
    steps: list[int] = []
    plan = TrainingPlan(tokens=1800, decay=600)
    make_weights(make, plan, lambda progress, loss: steps.append(progress.step))
    facts = make_starter(make, encoded / "out")
    assert steps == [1, 2, 3]
    assert facts["plan"]["tokens"] == facts["progress"]["tokens"] == 1800
    assert [*facts["validation"]] == ["python", "typescript"]
    assert facts["validation"]["typescript"]["gaps"]["tokens"] > 0
    tables: dict[str, int] = {}
    make_ngrams(make, encoded / "out", lambda of, table: tables.update({of: table.files}), CORPUS_LANGUAGES)
    assert all(files > 30 for files in tables.values())
    assert {path.name for path in (encoded / "out").iterdir()} == {
        "spd-lsp-starter.gguf",
        "python.ngt",
        "typescript.ngt",
        "MODEL_CARD.md",
        "training.json",
    }
    assert read_model(encoded / "out" / "spd-lsp-starter.gguf").config.vocab_size == 500


def test_a_finished_step_is_not_repeated(encoded: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in encoded.rglob("*") if path.is_file()}
    make_base(recipe_in(encoded), encoded / "published.gguf")
    make_rows(recipe_in(encoded))
    assert before == {path: path.stat().st_mtime_ns for path in encoded.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("step", "before"),
    [("ngrams", "corpus"), ("rows", "base MODEL.gguf"), ("train", "rows"), ("export", "train")],
)
def test_a_missing_step_is_named_in_one_line(tmp_path: Path, step: str, before: str) -> None:
    result = CliRunner().invoke(main, [step, "--work", str(tmp_path)])
    assert result.exit_code == 1
    assert f"run: python -m spd_lsp.training {before} --work" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_run_is_resumed_with_its_own_settings(tmp_path: Path) -> None:
    record_plan(tmp_path, TrainingPlan(tokens=10))
    record_plan(tmp_path, TrainingPlan(tokens=10))
    assert json.loads((tmp_path / "plan.json").read_text())["tokens"] == 10
    with pytest.raises(UserError, match=r"plan\.json"):
        record_plan(tmp_path, TrainingPlan(tokens=10, rate=0.1))
