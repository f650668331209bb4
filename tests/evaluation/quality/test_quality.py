"""The command runs from folders to tables, with paired differences, and refuses what was trained on."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from ngram_builders.errors import UserError
from spd_lsp.cli import main
from spd_lsp.evaluation.bootstrap import Interval
from spd_lsp.evaluation.quality import run as module
from spd_lsp.evaluation.quality.arms import parse_arms
from spd_lsp.evaluation.quality.examples import read_packages
from spd_lsp.evaluation.quality.report import Results, quality_report
from spd_lsp.evaluation.quality.run import read_records, refuse_leaks
from spd_lsp.evaluation.tables import percent, points

FACTS = {"model": "m", "max_tokens": 24}


def record(key, package, drafts, *, target="x(1)", stratum="line start", seen="new", typed=None):
    example = {"package": package, "file": f"{key}.py", "target": target, "stratum": stratum}
    costs = {"passes": 4, "rows": 3, "cpu_ms": 9.0}
    arms = {label: {"drafts": texts, **costs} for label, texts in drafts.items()}
    return {"example": example, "seen": seen, "arms": arms, "typed": typed or {}}


@pytest.fixture
def results():
    arms = parse_arms(["superposed", "greedy"], ["none"])
    hit, miss = ["x(1)", "y"], ["y"]
    records = [
        record("a", "p", {"superposed@none": hit, "greedy@none": miss}),
        record("b", "p", {"superposed@none": ["y", "x(1)"], "greedy@none": ["x(1)"]}, seen="in another file"),
        record("c", "q", {"superposed@none": hit, "greedy@none": miss}, stratum="mid-identifier"),
    ]
    return Results(records, arms, 3)


def test_scores_and_paired_differences(results):
    superposed, greedy = results.exact_matches(3, results.records).values()
    assert superposed.value.mean == 1
    assert greedy.value.mean == pytest.approx(1 / 3)
    assert superposed.less["greedy"].mean == pytest.approx(2 / 3)
    assert not greedy.less


def test_keystrokes_are_of_all_characters_together_and_requests_of_a_line():
    arms = parse_arms(["greedy"], ["repository+file"])
    label = arms[0].label
    records = [
        record("a", "p", {label: []}, typed={label: {"keystrokes": 1, "characters": 10, "requests": 2}}),
        record("b", "p", {label: []}, typed={label: {"keystrokes": 9, "characters": 10, "requests": 5}}),
        record("c", "p", {label: []}),
    ]
    found = Results(records, arms, 3)
    (score,) = found.keystrokes_saved(records).values()
    assert score.value.mean == 0.5
    assert "| KS | requests | passes |" in quality_report(found, FACTS)
    assert "| 3.5 | 4.0 | 3.0 | 9 |" in quality_report(found, FACTS)


def test_a_report_names_drafts_and_costs_and_shows_only_differences_that_are_some(results):
    text = quality_report(results, FACTS)
    assert "| arm | EM@1 | EM@3 | KS |" in text and "- model: m\n" in text
    assert points(Interval(0.05, 0.01, 0.09)) == "**+5.0 (+1.0 to +9.0)**"
    assert points(Interval(0.05, -0.01, 0.11)) == "+5.0 (-1.0 to +11.0)"
    assert percent(Interval(0.245, 0.2, 0.3)) == "24.5 (20.0 to 30.0)"


def run(*arguments):
    return CliRunner().invoke(main, ["eval", "quality", *map(str, arguments)])


@pytest.mark.slow
def test_the_command_measures_and_its_records_can_be_read_again(repository, tmp_path):
    arms = ["--arms", "superposed,greedy,nucleus,uncopied", "--priors", "repository+file"]
    done = run(repository, *arms, "--examples", 3, "--typed", 1, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "Decoders compared on 3 examples" in done.output
    assert "- trained on: other packages by name" in done.output
    records = read_records(tmp_path / "out")
    assert [len(one["arms"]) for one in records] == [4, 4, 4]
    assert [len(one["typed"]) for one in records].count(4) == 1


def test_a_package_of_a_name_that_was_trained_on_is_refused(repository, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "locate", lambda model: tmp_path)
    packages = read_packages([repository])
    assert "does not say" in refuse_leaks(packages, "m")
    (tmp_path / "training.json").write_text(json.dumps({"sources": [{"name": "Other_Rows"}]}))
    assert "compared with the 1" in refuse_leaks(packages, "m")
    (tmp_path / "training.json").write_text(json.dumps({"sources": [{"name": "Rows-1.2.0"}]}))
    with pytest.raises(UserError, match="trained on packages of these names: rows; leave these out"):
        refuse_leaks(packages, "m")


def test_a_folder_without_results_is_told(tmp_path):
    with pytest.raises(UserError, match="no results of `spd-lsp eval quality`"):
        read_records(tmp_path)
