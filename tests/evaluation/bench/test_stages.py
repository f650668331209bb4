"""Where a completion's processor time goes: each sample counts for the stage that runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from spd_lsp.cli import main
from spd_lsp.completion.completer import Completer
from spd_lsp.completion.offer import make_offer
from spd_lsp.evaluation.bench import stages
from spd_lsp.evaluation.bench.stages import STAGES, is_asked, stage_of
from spd_lsp.models.load import load
from tests.conftest import STARTER

needs_timer = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no timer of processor time")


def test_every_stage_is_one_that_a_completion_enters():
    called = {name for one in (Completer.complete, make_offer) for name in one.__code__.co_names}
    assert set(STAGES) <= {*called, "_matching_names"}  # which is passed on


def test_a_sample_counts_for_what_the_completion_has_called():
    complete, prefill = Completer.complete.__code__, type(load(STARTER)).prefill.__code__
    build, decode = (SimpleNamespace(co_name=name, co_filename="") for name in ("build_context", "superpose"))
    query = SimpleNamespace(co_name="mix", co_filename=f"{stages._ROOT}/ngram_builders/table/kernel.py")
    innermost: list[tuple[list[Any], str]] = [
        ([build], "context"),
        ([query, build], "context"),
        ([query, decode], stages.QUERIES),
        ([prefill, decode], "model: the prompt's new tokens"),
        ([], "other"),
    ]
    for inner, stage in innermost:
        assert stage_of([*inner, complete, is_asked.__code__]) == stage
    assert stage_of([is_asked.__code__]) == "other"


def test_completions_are_asked_for_where_a_line_begins_and_behind_signs():
    line = "    if f(x.y) = 1"
    assert [line[:end] for end in range(len(line)) if is_asked(line[:end])] == [
        "",
        "    if ",
        "    if f(",
        "    if f(x.",
        "    if f(x.y) ",
        "    if f(x.y) =",
        "    if f(x.y) = ",
    ]


@pytest.mark.slow
@needs_timer
def test_the_command_reports_every_stage_of_typed_lines(tmp_path: Path):
    code = "".join(f"def read_{n}(path, mode):\n    return open(path, mode).read({n})\n\n\n" for n in range(60))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "reader.py").write_text(code)
    command = ["--data-dir", str(tmp_path / "data"), "bench", "--stages", str(tmp_path / "code")]
    report = tmp_path / "stages.json"
    ran = CliRunner().invoke(main, [*command, "--out", str(report)])
    assert ran.exit_code == 0, ran.output
    assert "model: steps" in ran.output
    assert set(json.loads(report.read_text())["data"]["seconds"]) >= {"model: steps", "n-gram queries"}
    (tmp_path / "empty").mkdir()
    empty = CliRunner().invoke(main, [*command[:-1], str(tmp_path / "empty")])
    assert empty.exit_code == 1
    assert "no source files" in empty.output
