"""`spd-lsp eval smoothing` with the starter, from folders to a table, and again without asking anything twice."""

from __future__ import annotations

import json
import shutil

from click.testing import CliRunner

from spd_lsp.cli import main
from spd_lsp.evaluation.smoothing.trial import WRITING


def test_rules_are_compared_and_a_second_run_asks_nothing(repository, tmp_path):
    other = tmp_path / "others"
    shutil.copytree(repository, other)
    for path in other.iterdir():
        path.write_text(path.read_text().replace("name", "label"))
    out = tmp_path / "out"
    command = [
        "eval",
        "smoothing",
        str(repository),
        str(other),
        "--out",
        str(out),
        "--typed",
        "1",
        "--places",
        "20",
    ]
    for _ in range(2):
        told = CliRunner().invoke(main, command)
        assert told.exit_code == 0, told.output
        lines = (out / "places.jsonl").read_text().count("\n")
    rows = json.loads((out / "smoothing.json").read_text())["tables"][0]["rows"]
    assert {row[0] for row in rows} >= {*WRITING, "model alone"}
    assert all(row[3] for row in rows if row[0] in WRITING)
    records = [json.loads(line) for line in (out / "places.jsonl").read_text().splitlines()]
    assert len([one for one in records if "key" in one]) == len({one["key"] for one in records if "key" in one})
    assert lines == len(records)


def test_one_repository_has_no_others_to_be_judged_by(repository):
    told = CliRunner().invoke(main, ["eval", "smoothing", str(repository)])
    assert told.exit_code == 1
    assert "name more" in told.output
