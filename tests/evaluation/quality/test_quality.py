"""The command runs from folders to tables, goes on where it was stopped, and refuses what was trained on."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from spd_lsp.cli import main
from spd_lsp.evaluation.bootstrap import Interval
from spd_lsp.evaluation.quality.arms import parse_arms
from spd_lsp.evaluation.quality.report import quality_report
from spd_lsp.evaluation.quality.statistics import Results, metric_names
from spd_lsp.evaluation.report_writer import markdown_table, percent, points


def record(key, package, drafts, *, target="x(1)", stratum="line start", seen="new", typed=None):
    example = {"package": package, "file": f"{key}.py", "target": target, "stratum": stratum}
    costs = {"passes": 4, "rows": 3, "tokens": 4, "wall_ms": 10.0, "cpu_ms": 9.0}
    arms = {label: {"drafts": texts, **costs} for label, texts in drafts.items()}
    found = {"key": key, "example": example, "seen": seen, "arms": arms}
    return found | ({"typed": typed} if typed else {})


@pytest.fixture
def results():
    arms = parse_arms(["superposed", "greedy"], ["none"])
    hit, miss = ["x(1)", "y"], ["y"]
    records = [
        record("a", "p", {"superposed@none": hit, "greedy@none": miss}),
        record("b", "p", {"superposed@none": ["y", "x(1)"], "greedy@none": ["x(1)"]}, seen="in another file"),
        record("c", "q", {"superposed@none": hit, "greedy@none": miss}, stratum="mid-identifier"),
        record("d", "q", {"superposed@none": hit}),
    ]
    return Results(records, arms, 3)


def test_only_places_with_every_arm_count(results):
    assert [one["key"] for one in results.records] == ["a", "b", "c"]


def test_scores_and_paired_differences(results):
    superposed, greedy = results.scores("EM@3")
    assert superposed.value.mean == 1
    assert greedy.value.mean == pytest.approx(1 / 3)
    assert superposed.less["greedy"].mean == pytest.approx(2 / 3)
    assert not greedy.less


def test_an_arm_that_is_named_with_its_prior_is_compared_with_those_of_other_priors():
    arms = parse_arms(["superposed@none", "superposed@repository"], [])
    records = [
        record("a", "p", {"superposed@none": ["y"], "superposed@repository": ["x(1)"]}),
        record("b", "p", {"superposed@none": ["x(1)"], "superposed@repository": ["x(1)"]}),
    ]
    none, repository = Results(records, arms, 3, ["superposed@none"]).scores("EM@3")
    assert repository.less["superposed@none"].mean == pytest.approx(1 / 2)
    assert not none.less
    report = quality_report(Results(records, arms, 3, ["superposed@none"]), {}).markdown()
    assert "### Difference from superposed@none, paired" in report
    assert not Results(records, arms, 3, ["superposed"]).scores("EM@3")[1].less


def test_nothing_is_compared_with_an_arm_that_was_not_asked(results):
    others = Results(results.records, results.arms, 3, ["beam", "greedy"])
    assert others.against == ["greedy"]
    assert "Difference from beam" not in quality_report(others, {}).markdown()


def test_slices_are_primary_then_by_stratum_and_whether_seen(results):
    slices = results.slices()
    assert {name: len(records) for name, records in slices.items()} == {
        "primary: line start + after trigger": 2,
        "cursor: line start": 2,
        "cursor: mid-identifier": 1,
        "line: in another file": 1,
        "line: new": 1,
    }


def test_keystrokes_are_of_all_characters_together_and_requests_of_a_line():
    arms = parse_arms(["greedy"], ["repository+file"])
    label = arms[0].label
    records = [
        record("a", "p", {label: []}, typed={label: {"keystrokes": 1, "characters": 10, "requests": 2}}),
        record("b", "p", {label: []}, typed={label: {"keystrokes": 9, "characters": 10, "requests": 5}}),
        record("c", "p", {label: []}),
    ]
    found = Results(records, arms, 3)
    (score,) = found.keystrokes_saved()
    assert score.value.mean == 0.5
    assert found.requests(records) == {label: 3.5}
    assert "| KS | requests | passes |" in quality_report(found, {}).markdown()
    assert "| 3.5 | 4.0 | 3.0 |" in quality_report(found, {}).markdown()


def test_a_report_names_drafts_and_costs_and_shows_only_differences_that_are_some(results):
    text = quality_report(results, {"model": "m"}).markdown()
    assert "| arm | drafts | EM@1 | EM@3 |" in text
    assert "p50 ms" in text
    assert points(Interval(0.05, 0.01, 0.09)) == "**+5.0 (+1.0 to +9.0)**"
    assert points(Interval(0.05, -0.01, 0.11)) == "+5.0 (-1.0 to +11.0)"
    assert percent(Interval(0.245, 0.2, 0.3)) == "24.5 (20.0 to 30.0)"
    assert metric_names(1)[:2] == ["EM@1", "ES@1"]


def test_cells_cannot_break_a_table():
    assert markdown_table([["a"], ["x | y"]]).splitlines()[2] == "| x \\| y |"


ARGUMENTS = ["--arms", "superposed,greedy,nucleus", "--examples", "3", "--typed", "1"]
ARGUMENTS += ["--priors", "repository+file"]


def run(*arguments):
    return CliRunner().invoke(main, ["eval", "quality", *map(str, arguments)])


@pytest.mark.slow
def test_the_command_measures_writes_and_goes_on(repository, tmp_path):
    out = tmp_path / "out"
    arguments = [repository, *ARGUMENTS, "--out", out]
    first = run(*arguments)
    assert first.exit_code == 0, first.output
    assert "Decoders compared on 3 examples" in first.output
    found = json.loads((out / "results.json").read_text())
    assert "trained on" in found["facts"]
    lines = (out / "examples.jsonl").read_text().splitlines()
    (out / "examples.jsonl").write_text("\n".join(lines[:-1]) + "\n")
    again = run(*arguments)
    assert again.exit_code == 0, again.output
    kept = (out / "examples.jsonl").read_text().splitlines()
    assert kept[:-1] == lines[:-1]
    assert json.loads(kept[-1])["key"] == json.loads(lines[-1])["key"]


def test_new_arms_are_added_to_the_places_that_were_measured(repository, tmp_path):
    arguments = [repository, "--priors", "none", "--examples", "2", "--typed", "0", "--out", tmp_path / "out"]
    assert run(*arguments, "--arms", "greedy").exit_code == 0
    both = run(*arguments, "--arms", "greedy,superposed")
    assert both.exit_code == 0, both.output
    assert "superposed@none" in both.output
    assert "2 examples" in both.output
