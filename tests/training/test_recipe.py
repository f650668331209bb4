"""The steps run in order and once, and a missing input is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from ngram_builders.errors import UserError
from spd_lsp.training import checkpoint, recipe, selection
from spd_lsp.training.__main__ import main
from spd_lsp.training.corpus.gather import CORPUS_LANGUAGES
from spd_lsp.training.gguf_weights import read_model
from spd_lsp.training.handover import pack_run, unpack_run
from spd_lsp.training.recipe import (
    Recipe,
    make_base,
    make_decay,
    make_gguf,
    make_ngrams,
    make_rows,
    make_start,
    make_starter,
    make_tokenizer,
    make_weights,
    measure_by_language,
    never,
    record_plan,
)
from spd_lsp.training.train import ModelShape, Progress, TrainingPlan
from tests.training.base_files import write_published

TINY = ModelShape(width=32, inner=32, layers=2, heads=2)


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
    """A work folder after the steps corpus, tokenizer and rows."""
    work = tmp_path_factory.mktemp("encoded")
    for number in range(150):
        path = work / "corpus" / CORPUS_LANGUAGES[number % 2] / f"package{number % 3}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(sources[number % len(sources)][:3000])
    (work / "corpus" / "sources.json").write_text(json.dumps(manifest))
    make_tokenizer(recipe_in(work))
    make_rows(recipe_in(work))
    return work


def recipe_in(work: Path, vocabulary: int = 320) -> Recipe:
    return Recipe(work=work, vocabulary=vocabulary, length=300, shape=TINY)


@pytest.fixture
def encoded(encoded_once: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return shutil.copytree(encoded_once, tmp_path, dirs_exist_ok=True)


@pytest.fixture
def work(encoded: Path) -> Path:
    """A work folder after the step corpus alone."""
    for step in ("tokenizer", "rows"):
        shutil.rmtree(encoded / step)
    return encoded


@pytest.mark.slow
def test_the_steps_lead_from_a_corpus_to_a_model(work: Path) -> None:
    make = recipe_in(work)
    plan = TrainingPlan(tokens=1200, rows_a_step=2, low="float32")
    make_tokenizer(make)
    make_rows(make)
    steps: list[int] = []
    make_weights(make, plan, lambda progress, loss: steps.append(progress.step))
    make_decay(make, 600, lambda progress, loss: steps.append(progress.step))
    facts = make_starter(make, work / "out")
    assert steps == [1, 2, 3]
    assert facts["plan"]["tokens"] == facts["progress"]["tokens"] == 1800
    assert [*facts["validation"]] == ["python", "typescript"]
    assert facts["validation"]["typescript"]["gaps"]["tokens"] > 0
    assert {*measure_by_language(make, work / "exported")} == {"python", "typescript"}
    tables: dict[str, int] = {}
    make_ngrams(make, work / "out", lambda language, table: tables.update({language: table.files}))
    assert all(files > 30 for files in tables.values())
    assert {path.name for path in (work / "out").iterdir()} == {
        "spd-lsp-starter.gguf",
        "python.ngt",
        "typescript.ngt",
        "MODEL_CARD.md",
        "training.json",
    }


@pytest.mark.slow
def test_a_published_model_goes_on_learning_and_becomes_a_gguf_file(work: Path, sources: list[str]) -> None:
    """Each export adds a point to the learning curve."""
    pytest.importorskip("xllamacpp")
    write_published(sources, work / "published.gguf")
    make = recipe_in(work, vocabulary=500)
    make_base(make, work / "published.gguf")
    make_rows(make)
    for tokens in (1200, 2400):
        make_weights(make, TrainingPlan(tokens=tokens, rows_a_step=2, optimiser="adamw", matrix_rate=1e-3), ignore)
        point = make_gguf(make, work / "starter.gguf")
        assert point["tokens"] == tokens
    curve = [json.loads(line) for line in (work / "curve.jsonl").read_text().splitlines()]
    assert [one["tokens"] for one in curve] == [1200, 2400]
    assert all(one[name][kind] > 0 for one in curve for name in ("python", "others") for kind in ("plain", "gaps"))
    assert read_model(work / "starter.gguf").config.vocab_size == 500


def stop_after_one(progress: Progress) -> bool:
    return progress.step == 1


def of_another_tokenizer(work: Path, folder: Path) -> Recipe:
    """A second work folder with the same corpus, whose tokenizer has more tokens."""
    folder.mkdir()
    (folder / "corpus").symlink_to(work / "corpus")
    make = recipe_in(folder, vocabulary=400)
    make_tokenizer(make)
    make_rows(make)
    return make


@pytest.mark.slow
def test_a_run_from_a_model_of_another_tokenizer_can_be_interrupted(encoded: Path, tmp_path: Path) -> None:
    """Its card says what was learnt before, and how; another machine needs nothing but the packed run."""
    make = recipe_in(encoded)
    plan = TrainingPlan(tokens=1200, rows_a_step=2, low="float32")
    make_weights(make, plan, ignore)
    make_starter(make, encoded / "before", "run")
    parts, whole = (of_another_tokenizer(encoded, tmp_path / name) for name in ("parts", "whole"))
    for again in (parts, parts, whole):
        make_start(again, encoded / "exported", 3)
        make_weights(again, plan, ignore, (lambda progress: True) if again is parts else never)
    facts = make_starter(parts, tmp_path / "out", "run")
    assert (facts["shape"]["layers"], facts["progress"]["before"], facts["progress"]["tokens"]) == (3, 1200, 1200)
    assert (
        "--vocabulary 400 --from START --layers 3 --rate 0.02 --tokens 1200"
        in (tmp_path / "out" / "MODEL_CARD.md").read_text()
    )
    weights, wanted = (load_file(one.work / "run" / checkpoint.FULL_FILE) for one in (parts, whole))
    assert all(torch.equal(weights[name], tensor) for name, tensor in wanted.items())
    start = parts.work / "run" / "start"
    make_starter(parts, tmp_path / "averaged", "run", {start: 0.25})
    assert f"--average {start} 0.25" in (tmp_path / "averaged" / "MODEL_CARD.md").read_text()
    with pytest.raises(UserError, match=r"add up to 1\.2; keep them below 1"):
        make_starter(parts, tmp_path / "averaged", "run", {start: 0.6, tmp_path / "out": 0.6})
    pack_run(parts.work, tmp_path / "run.tar.xz")
    unpack_run(tmp_path / "run.tar.xz", tmp_path / "there")
    assert Recipe(work=tmp_path / "there").config().num_hidden_layers == 3


def test_a_started_run_accepts_no_starting_model(encoded: Path) -> None:
    make = recipe_in(encoded)
    make_weights(make, TrainingPlan(tokens=600, rows_a_step=2, low="float32"), ignore)
    make_starter(make, encoded / "model", "run")
    with pytest.raises(UserError, match="leave out --from"):
        make_start(make, encoded / "exported")
    fresh = recipe_in(encoded / "fresh")
    shutil.copytree(encoded / "tokenizer", fresh.work / "tokenizer")
    with pytest.raises(UserError, match="has 2 layers and cannot lose any"):
        make_start(fresh, encoded / "exported", 1)
    with pytest.raises(UserError, match=r"training\.json"):
        make_start(fresh, encoded / "tokenizer")


def test_the_tokenizer_decides_the_size_of_the_model(work: Path) -> None:
    options = ["tokenizer", "--work", str(work), "--vocabulary", "500"]
    assert CliRunner().invoke(main, options, catch_exceptions=False).exit_code == 0
    assert Recipe(work=work).config().vocab_size == 500


def test_a_finished_step_is_not_repeated(work: Path) -> None:
    make = recipe_in(work)
    for step in (make_tokenizer, make_rows):
        step(make)
        before = {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()}
        step(make)
        assert before == {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("step", "before"), [("tokenizer", "corpus"), ("train", "rows"), ("export", "decay"), ("decay", "train")]
)
def test_a_missing_step_is_named_in_one_line(tmp_path: Path, step: str, before: str) -> None:
    result = CliRunner().invoke(main, [step, "--work", str(tmp_path)])
    assert result.exit_code == 1
    assert f"run: python -m spd_lsp.training {before} --work" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_run_cannot_be_resumed_with_other_settings(tmp_path: Path) -> None:
    record_plan(tmp_path, TrainingPlan(tokens=10))
    record_plan(tmp_path, TrainingPlan(tokens=10))
    with pytest.raises(UserError, match=r"plan\.json"):
        record_plan(tmp_path, TrainingPlan(tokens=10, matrix_rate=0.1))


def test_a_run_that_an_older_version_planned_can_be_resumed(tmp_path: Path) -> None:
    record_plan(tmp_path, TrainingPlan(tokens=10))
    plan = json.loads((tmp_path / "plan.json").read_text())
    (tmp_path / "plan.json").write_text(json.dumps(plan | {"first_row": 0}))
    record_plan(tmp_path, TrainingPlan(tokens=10))


def test_a_run_with_a_constant_rate_may_get_more_tokens(tmp_path: Path) -> None:
    record_plan(tmp_path, TrainingPlan(tokens=10))
    record_plan(tmp_path, TrainingPlan(tokens=20))
    assert json.loads((tmp_path / "plan.json").read_text())["tokens"] == 20
    record_plan(tmp_path / "falling", TrainingPlan(tokens=10, decay=5))
    with pytest.raises(UserError, match=r"plan\.json"):
        record_plan(tmp_path / "falling", TrainingPlan(tokens=20, decay=5))


def test_a_decay_leaves_the_run_as_it_is_and_can_be_resumed(encoded: Path) -> None:
    """The run can be resumed as if there had been no decay."""
    make = recipe_in(encoded)
    make_weights(make, TrainingPlan(tokens=1200, rows_a_step=2, low="float32"), ignore)
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


def test_all_runs_every_step_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    for name in ("corpus", "tokenizer", "rows", "weights", "decay"):
        monkeypatch.setattr(recipe, f"make_{name}", lambda *given, name=name, **named: done.append(name))
    monkeypatch.setattr(recipe, "make_starter", lambda *given: done.append("starter") or {"validation": {}})
    monkeypatch.setattr(recipe, "make_ngrams", lambda *given: done.append("ngrams"))
    result = CliRunner().invoke(main, ["all", "--work", str(tmp_path)], catch_exceptions=False)
    assert result.exit_code == 0
    assert done == ["corpus", "tokenizer", "rows", "weights", "decay", "starter", "ngrams"]
