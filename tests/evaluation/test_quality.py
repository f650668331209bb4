"""The command runs from folders to tables, goes on where it was stopped, and refuses what was trained on."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from spd_lsp.cli import main
from spd_lsp.evaluation.arms import parse_arms
from spd_lsp.evaluation.bootstrap import Interval
from spd_lsp.evaluation.report import Shown, report_of
from spd_lsp.evaluation.report_writer import percent, points, table
from spd_lsp.evaluation.tables import Results, metric_names


def record(key, package, drafts, *, target="x(1)", stratum="line start", seen="new", typed=None):
    place = {"package": package, "file": f"{key}.py", "target": target, "stratum": stratum}
    costs = {"passes": 4, "rows": 3, "tokens": 4, "wall_ms": 10.0, "cpu_ms": 9.0}
    arms = {label: {"drafts": texts, **costs} for label, texts in drafts.items()}
    found = {"key": key, "place": place, "seen": seen, "arms": arms}
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


def test_nothing_is_compared_with_an_arm_that_was_not_asked(results):
    others = Results(results.records, results.arms, 3, ["beam", "greedy"])
    assert others.against == ["greedy"]
    assert "Less beam" not in report_of(others, {}, []).markdown()


def test_slices_are_primary_then_by_stratum_length_and_whether_seen(results):
    slices = results.slices()
    assert {name: len(records) for name, records in slices.items()} == {
        "primary: line start + after trigger": 2,
        "cursor: line start": 2,
        "cursor: mid-identifier": 1,
        "length: 1-4 code tokens": 2,
        "line: in another file": 1,
        "line: new": 1,
    }


def test_keystrokes_are_of_all_characters_together():
    arms = parse_arms(["greedy"], ["repository+file"])
    label = arms[0].label
    records = [
        record("a", "p", {label: []}, typed={label: {"keystrokes": 1, "characters": 10}}),
        record("b", "p", {label: []}, typed={label: {"keystrokes": 9, "characters": 10}}),
        record("c", "p", {label: []}),
    ]
    (score,) = Results(records, arms, 3).keystrokes()
    assert score.value.mean == 0.5


def test_what_samplers_score_on_average_is_told_beside_the_table():
    arms = parse_arms(["nucleus"], ["repository+file", "none"])
    records = [
        record(key, "p", {arm.label: [] for arm in arms})
        | {"draws": {"nucleus@repository+file": ["x(1)"] + ["y"] * 3}}
        for key in "ab"
    ]
    results = Results(records, arms, 2)
    (score,) = results.expected(2)
    assert score.value.mean == 0.5
    assert "2 draws would score EM@2 50.0 (50.0 to 50.0) % on average" in report_of(results, {}, []).markdown()


def test_a_report_names_drafts_and_costs_and_shows_only_differences_that_are_some(results):
    text = report_of(results, {"model": "m"}, []).markdown()
    assert "| arm | drafts | EM@1 | EM@3 |" in text
    assert "p50 ms" in text
    assert "superposed (2.0 drafts) with n-grams of none scored EM@3 100.0 % against 50.0 % for greedy" in text
    assert points(Interval(0.05, 0.01, 0.09)) == "**+5.0 (+1.0 to +9.0)**"
    assert points(Interval(0.05, -0.01, 0.11)) == "+5.0 (-1.0 to +11.0)"
    assert percent(Interval(0.245, 0.2, 0.3)) == "24.5 (20.0 to 30.0)"
    assert metric_names(1)[:2] == ["EM@1", "EM-ws@1"]


def test_cells_cannot_break_a_table():
    assert table([["a"], ["x | y"]]).splitlines()[2] == "| x \\| y |"


ARGUMENTS = ["--arms", "superposed,greedy,nucleus", "--places", "3", "--typed", "1", "--drawn", "1"]
ARGUMENTS += ["--priors", "repository+file"]


def run(*arguments):
    return CliRunner().invoke(main, ["eval", "quality", *map(str, arguments)])


@pytest.mark.slow
def test_the_command_measures_writes_and_goes_on(repository, tmp_path):
    out = tmp_path / "out"
    arguments = [repository, *ARGUMENTS, "--out", out, "--no-figures"]
    first = run(*arguments)
    assert first.exit_code == 0, first.output
    assert "Completions compared at 3 places" in first.output
    found = json.loads((out / "results.json").read_text())
    assert {leak["verdict"] for leak in found["data"]["leaks"]} >= {"ok", "not checked", "told"}
    lines = (out / "places.jsonl").read_text().splitlines()
    assert [len(one) for line in lines for one in json.loads(line).get("draws", {}).values()] == [20]
    (out / "places.jsonl").write_text("\n".join(lines[:-1]) + "\n")
    again = run(*arguments)
    assert again.exit_code == 0, again.output
    kept = (out / "places.jsonl").read_text().splitlines()
    assert kept[:-1] == lines[:-1]
    assert json.loads(kept[-1])["key"] == json.loads(lines[-1])["key"]


def test_new_arms_are_added_to_the_places_that_were_measured(repository, tmp_path):
    arguments = [repository, "--priors", "none", "--places", "2", "--typed", "0", "--out", tmp_path / "out"]
    assert run(*arguments, "--no-figures", "--arms", "greedy").exit_code == 0
    both = run(*arguments, "--no-figures", "--arms", "greedy,superposed")
    assert both.exit_code == 0, both.output
    assert "superposed@none" in both.output
    assert "2 places" in both.output


@pytest.mark.slow
def test_baselines_are_tuned_and_the_best_take_part(repository, tmp_path):
    out = tmp_path / "out"
    tried = CliRunner().invoke(
        main, ["eval", "baselines", str(repository), "--places", "20", "--out", str(out), "--no-figures"]
    )
    assert tried.exit_code == 0, tried.output
    assert "| nucleus:top_p=0.95 |" in tried.stdout.replace("*", "")
    assert not (out / "baselines.png").exists()
    best = json.loads((out / "baselines.json").read_text())["data"]["best"]
    options = ["--tuned", "--primary", "--priors", "none", "--typed", "0", "--drawn", "0", "--no-figures"]
    found = run(repository, "--arms", "greedy", *options, "--out", out)
    assert found.exit_code == 0, found.output
    assert f"{best['beam']}@repository+file" in found.output
    assert "mid-identifier" not in found.output


@pytest.mark.slow
def test_ways_are_compared_by_the_number_of_drafts(repository, tmp_path):
    pytest.importorskip("matplotlib")
    options = ["--places", "2", "--typed", "1", "--by", "2,3", "--out", str(tmp_path)]
    found = CliRunner().invoke(main, ["eval", "drafts", str(repository), *options])
    assert found.exit_code == 0, found.output
    assert "| 20 | oracle |" in found.stdout
    assert (tmp_path / "drafts.png").exists()
    refused = CliRunner().invoke(main, ["eval", "drafts", str(repository), "--by", "1,40"])
    assert "expected numbers of drafts from 2 to 16" in refused.output


def test_without_matplotlib_all_but_the_figure_is_written(repository, tmp_path, monkeypatch):
    monkeypatch.setattr("spd_lsp.evaluation.report_writer.find_spec", lambda name: None)
    found = run(repository, "--arms", "greedy", "--priors", "none", "--places", "1", "--out", tmp_path / "out")
    assert found.exit_code == 0, found.output
    assert "no figure: matplotlib is missing; pip install 'spd-lsp[bench]'" in found.stderr
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".jsonl", ".json", ".md"}


def test_times_of_other_runs_are_named(results):
    assert "taken in another run" not in report_of(results, {}, []).markdown()
    for record in results.records:
        record["arms"]["greedy@none"]["turn"] = 7
    assert "another run than those of superposed@none: greedy@none" in report_of(results, {}, []).markdown()


def test_the_places_shown_are_those_of_their_seed(results):
    texts = [report_of(results, {}, [], Shown(1, seed)).markdown() for seed in (0, 0, 1)]
    assert texts[0] == texts[1]
    assert len({text[text.index("picked at random") :] for text in texts}) == 2
    assert "picked at random" not in report_of(results, {}, [], Shown(0)).markdown()


def test_trained_on_repositories_are_refused(repository, tmp_path):
    found = run(repository, *ARGUMENTS, "--out", tmp_path / "out", "--no-figures", "--training", repository)
    assert found.exit_code == 1
    assert "expected repositories that the model has not seen" in found.output
    assert not (tmp_path / "out" / "results.json").exists()


def test_figures_are_drawn(repository, tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    found = run(repository, "--arms", "greedy", "--priors", "none,repository", "--typed", "0", "--out", out)
    assert found.exit_code == 0, found.output
    assert [path.name for path in out.glob("*.png")] == ["results.png"]
