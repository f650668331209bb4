"""The steps run in order and once, and a missing input is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ngram_builders.errors import UserError
from spd_lsp.training import checkpoint, selection
from spd_lsp.training.__main__ import main
from spd_lsp.training.corpus.gather import CORPUS_LANGUAGES
from spd_lsp.training.gguf_weights import read_model
from spd_lsp.training.recipe import (
    Recipe,
    make_base,
    make_decay,
    make_gguf,
    make_ngrams,
    make_rows,
    make_starter,
    make_weights,
    measure_by_language,
    record_plan,
)
from spd_lsp.training.train import Progress, TrainingPlan
from tests.training.base_files import write_published


def ignore(progress: Progress, loss: float) -> None:
    """Nobody watches."""


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
    """Each GGUF file on the way adds a point to the learning curve."""
    make, curve = recipe_in(encoded), []
    steps: list[int] = []
    for tokens in (600, 1200):
        make_weights(make, TrainingPlan(tokens=tokens), lambda progress, loss: steps.append(progress.step))
        curve.append(make_gguf(make, encoded / "point.gguf"))
    make_decay(make, 600, lambda progress, loss: steps.append(progress.step))
    facts = make_starter(make, encoded / "out")
    assert steps == [1, 2, 3]
    assert facts["plan"]["tokens"] == facts["progress"]["tokens"] == 1800
    assert [*facts["validation"]] == ["python", "typescript"]
    assert facts["validation"]["typescript"]["gaps"]["tokens"] > 0
    assert {*measure_by_language(make, encoded / "exported")} == {"python", "typescript"}
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
    assert curve == [json.loads(line) for line in (encoded / "curve.jsonl").read_text().splitlines()]
    assert [one["tokens"] for one in curve] == [600, 1200]
    assert all(one[name][kind] > 0 for one in curve for name in ("python", "others") for kind in ("plain", "gaps"))


def test_a_finished_step_is_not_repeated(encoded: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in encoded.rglob("*") if path.is_file()}
    make_base(recipe_in(encoded), encoded / "published.gguf")
    make_rows(recipe_in(encoded))
    assert before == {path: path.stat().st_mtime_ns for path in encoded.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("step", "before"),
    [("ngrams", "corpus"), ("rows", "base MODEL.gguf"), ("train", "rows"), ("export", "decay")],
)
def test_a_missing_step_is_named_in_one_line(tmp_path: Path, step: str, before: str) -> None:
    result = CliRunner().invoke(main, [step, "--work", str(tmp_path)])
    assert result.exit_code == 1
    assert f"run: python -m spd_lsp.training {before} --work" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_run_is_resumed_with_its_own_settings_and_perhaps_more_tokens(tmp_path: Path) -> None:
    record_plan(tmp_path, TrainingPlan(tokens=10))
    record_plan(tmp_path, TrainingPlan(tokens=20))
    assert json.loads((tmp_path / "plan.json").read_text())["tokens"] == 20
    with pytest.raises(UserError, match=r"plan\.json"):
        record_plan(tmp_path, TrainingPlan(tokens=20, rate=0.1))
    record_plan(tmp_path / "falling", TrainingPlan(tokens=10, decay=5))
    with pytest.raises(UserError, match=r"plan\.json"):
        record_plan(tmp_path / "falling", TrainingPlan(tokens=20, decay=5))


def test_a_run_that_an_older_version_planned_can_be_resumed(tmp_path: Path) -> None:
    older = asdict(TrainingPlan(tokens=10))
    older |= {"matrix_rate": older.pop("rate"), "optimiser": "adamw", "bits": 4, "python_share": None}
    (tmp_path / "plan.json").write_text(json.dumps(older))
    record_plan(tmp_path, TrainingPlan(tokens=10))


def test_a_decay_leaves_the_run_as_it_is_and_can_be_resumed(encoded: Path) -> None:
    """The run can be resumed as if there had been no decay."""
    make = recipe_in(encoded)
    make_weights(make, TrainingPlan(tokens=1200), ignore)
    before = (encoded / "run" / checkpoint.FULL_FILE).read_bytes()
    steps: list[int] = []

    def interrupt(progress: Progress, loss: float) -> None:
        steps.append(progress.step)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_decay(make, 1200, interrupt)
    make_decay(make, 9999, lambda progress, loss: steps.append(progress.step))
    assert steps == [3, 3, 4]
    assert (encoded / "run" / checkpoint.FULL_FILE).read_bytes() == before
