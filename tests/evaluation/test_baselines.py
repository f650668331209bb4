"""Every way is tried at its settings as they come and at others; the best by EM@k is named."""

from __future__ import annotations

import json

import pytest

from ngram_builders.errors import UserError
from spd_lsp.evaluation.arms import parse_arm
from spd_lsp.evaluation.baselines import arms_of, best_of, grid, summarise, way

COSTS = {"passes": 4, "rows": 3, "tokens": 4, "wall_ms": 10.0, "cpu_ms": 9.0}


def records(hits):
    """Four places in two packages; `hits` says at how many of them an arm writes the target."""
    return [
        {
            "key": str(n),
            "place": {"package": f"p{n % 2}", "file": f"{n}.py", "target": "x", "stratum": "line start"},
            "seen": "new",
            "arms": {
                arm.label: {"drafts": ["x" if n < hits.get(arm.family, 1) else "y"], **COSTS} for arm in arms_of()
            },
        }
        for n in range(4)
    ]


def test_each_way_begins_as_it_comes_and_no_arm_comes_twice():
    for kind, arms in grid().items():
        first, *others = arms.values()
        assert first.family == kind
        assert len({arm.label for arm in arms.values()}) == len(arms)
        assert all(arm.settings != first.settings or arm.extra != first.extra for arm in others)


def test_the_best_is_named_and_of_equals_the_first():
    report = summarise(records({"nucleus:top_p=0.95": 3, "beam:length_penalty=1.0": 0}), {}, 3)
    assert report.data["best"]["nucleus"] == "nucleus:top_p=0.95"
    assert report.data["best"]["beam"] == "beam"
    assert "**nucleus:top_p=0.95**" in report.markdown()
    row = "| nucleus, top_p 0.95 | draw_temperature 1.0, 0.8, 0.6, 0.4, 0.2 | **75.0**, 25.0, 25.0, 25.0, 25.0 |"
    assert row in report.markdown()


def test_a_later_run_finds_the_best(tmp_path):
    (tmp_path / "baselines.json").write_text(json.dumps({"data": {"best": {"beam": "beam:temperature=0.8"}}}))
    assert parse_arm(f"{best_of(tmp_path)['beam']}@none").settings == {"temperature": 0.8}


def test_without_an_earlier_run_the_command_is_named(tmp_path):
    with pytest.raises(UserError, match="run `spd-lsp eval baselines`"):
        best_of(tmp_path)


def test_what_comes_as_it_is_is_not_written():
    assert way("nucleus", draw_temperature=1.0, top_p=0.95) == "nucleus:top_p=0.95"
    assert way("beam", length_penalty=0.0, temperature=1.0) == "beam"
