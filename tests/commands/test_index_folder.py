"""The process that indexes an open folder stops at limits of size and time, and reports each step once."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ngram_builders.sources.rules.selection import Selection
from spd_lsp.cli import main
from spd_lsp.commands import build_ngrams
from spd_lsp.commands.build_ngrams import _reason_not_to_build, _report_progress


def write(path: Path, text: str = "x = 1\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(4):
        write(tmp_path / "shop" / f"{number}.py", f"till = {number}\n")
    return tmp_path / "shop"


def events(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_folder_is_large_from_a_number_of_files_or_bytes_on(folder: Path, monkeypatch: pytest.MonkeyPatch):
    write(folder / "notes.txt", "x" * 1000)
    assert _reason_not_to_build(folder, Selection()) is None
    monkeypatch.setattr(build_ngrams, "_MAX_FILES", 3)
    large = "large", "it has more than 3 files, 0.0 kB, of source code"
    assert _reason_not_to_build(folder, Selection()) == large
    monkeypatch.setattr(build_ngrams, "_MAX_FILES", 99)
    monkeypatch.setattr(build_ngrams, "_MAX_BYTES", 20)
    large = "large", "it has more than 2 files, 0.0 kB, of source code"
    assert _reason_not_to_build(folder, Selection()) == large


def test_progress_only_grows_and_in_steps_worth_showing(capsys: Any):
    report = partial(_report_progress, [0.0])
    for stage, done, total in (("survey", 1, 1), ("bytes", 5, 10), ("bytes", 501, 1000), ("files", 1, 1),
                               ("bytes", 0, 0), ("sorting", 9, 10), ("sorting", 1, 1)):  # fmt: skip
        report(stage, done, total)
    assert [event["progress"] for event in events(capsys)] == [0.4, 0.98, 1.0]


def build(folder: Path, data: Path) -> None:
    build_ngrams.index_folder(str(folder), str(data), "starter", unlimited=False)


def test_a_data_folder_that_cannot_be_written_is_named(folder: Path, tmp_path: Path, capsys: Any):
    data = write(tmp_path / "data")
    build(folder, data)
    last = events(capsys)[-1]
    assert f"cannot write the n-gram registry {data}" in last["failed"]


def test_a_folder_is_indexed_again_as_its_user_chose(folder: Path, tmp_path: Path, capsys: Any):
    arguments = ["--data-dir", str(tmp_path / "data"), "build-ngrams", str(folder), "--exclude", "0.py"]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    write(folder / "4.py", "till = 4\n")
    build(folder, tmp_path / "data")
    assert events(capsys)[-1] == {"built": "4 files"}
