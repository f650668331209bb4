"""The process that indexes an open folder stops at limits of size and time, and reports each step once."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from spd_lsp.cli import main
from spd_lsp.commands import index_folder
from spd_lsp.commands.index_folder import _main, _Progress, _Size, _survey, _TooLarge
from spd_lsp.lsp.indexing.build_process import BuildTask
from tests.ngram_builders.dependencies.projects import install_python, write


@pytest.fixture(autouse=True)
def in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch):
    """The limits are of the process' time: that of the tests may have run for long."""
    monkeypatch.setattr(index_folder, "_MAX_SURVEY_SECONDS", 1e9)
    monkeypatch.setattr(index_folder, "_MAX_SECONDS", 1e9)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(4):
        write(tmp_path / "shop" / f"{number}.py", f"till = {number}\n")
    return tmp_path / "shop"


def events(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_files_and_bytes_are_counted_up_to_a_limit(folder: Path, monkeypatch: pytest.MonkeyPatch):
    write(folder / "notes.txt", "x" * 1000)
    assert _survey(folder, unlimited=False) == _Size(files=4, bytes=4 * len("till = 0\n"))
    monkeypatch.setattr(index_folder, "_MAX_FILES", 3)
    with pytest.raises(_TooLarge, match="more than 3 files"):
        _survey(folder, unlimited=False)
    assert _survey(folder, unlimited=True).files == 4
    monkeypatch.setattr(index_folder, "_MAX_FILES", 99)
    monkeypatch.setattr(index_folder, "_MAX_BYTES", 20)
    with pytest.raises(_TooLarge, match="more than 2 files"):
        _survey(folder, unlimited=False)


def test_a_folder_with_very_many_other_files_is_given_up_and_one_with_some_source_is_a_question(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write(tmp_path / "photos" / "one.jpg")
    write(tmp_path / "photos" / "two.jpg")
    monkeypatch.setattr(index_folder, "_MAX_SURVEY_SECONDS", 0.0)
    assert _survey(tmp_path / "photos", unlimited=False).files == 0
    with pytest.raises(_TooLarge, match="very many files"):
        _survey(folder, unlimited=False)


def test_a_build_that_takes_too_long_is_a_question(monkeypatch: pytest.MonkeyPatch, capsys: Any):
    monkeypatch.setattr(index_folder, "_MAX_SECONDS", 0.0)
    with pytest.raises(_TooLarge, match=r"12 files, 3\.4 kB, of source code"):
        _Progress(_Size(12, 3400), unlimited=False).report("bytes", 1, 2)
    _Progress(_Size(12, 3400), unlimited=True).report("bytes", 1, 2)
    assert events(capsys) == [{"kind": "progress", "text": "", "share": 0.25}]


def test_progress_only_grows_and_in_steps_worth_showing(capsys: Any):
    progress = _Progress(_Size(1, 1), unlimited=False)
    for stage, done, total in (("survey", 1, 1), ("bytes", 5, 10), ("bytes", 501, 1000), ("files", 1, 1),
                               ("bytes", 0, 0), ("counting", 1, 1), ("measuring", 1, 1)):  # fmt: skip
        progress.report(stage, done, total)
    assert [event["share"] for event in events(capsys)] == [0.25, 0.95, 1.0]


def build(folder: Path, data: Path, **changes: Any) -> None:
    """Run the process' main function on a folder."""
    task = BuildTask(str(folder), str(data), "starter", False, True, False, "")
    _main(replace(task, **changes))


@pytest.fixture
def without_a_server(monkeypatch: pytest.MonkeyPatch):
    """The process ends with its standard input; that of the tests is empty."""
    monkeypatch.setattr(index_folder, "end_with_input", lambda: None)


@pytest.mark.usefixtures("without_a_server")
def test_a_data_folder_that_cannot_be_written_is_named(folder: Path, tmp_path: Path, capsys: Any):
    data = write(tmp_path / "data")
    build(folder, data)
    last = events(capsys)[-1]
    assert last["kind"] == "failed" and f"cannot write the n-gram registry {data}" in last["text"]


@pytest.mark.usefixtures("without_a_server")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on a file's size")
@pytest.mark.parametrize(("packages", "cause"), [(False, "ulimit -f"), (True, "File too large")])
def test_a_limit_on_files_is_named_and_costs_one_build(
    folder: Path, tmp_path: Path, capsys: Any, packages: bool, cause: str
):
    import resource

    install_python(folder / ".venv", "flask", "3.0.0", "flask/__init__.py")
    write(folder / "app.py", "import flask\n")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        build(folder, tmp_path / "data", dependencies=packages, sources=not packages)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    last = events(capsys)[-1]
    assert last["kind"] == "failed" and cause in last["text"], last
    assert list((tmp_path / "data").rglob("*.tmp")) == []
    build(folder, tmp_path / "data", dependencies=packages, sources=not packages)
    assert events(capsys)[-1]["kind"] == "built"


@pytest.mark.usefixtures("without_a_server")
def test_packages_have_the_time_that_the_folder_leaves_them(
    folder: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
):
    write(folder / "app.py", "import flask\n")
    install_python(tmp_path / "chosen", "flask", "3.0.0", "flask/__init__.py")
    interpreter = str(tmp_path / "chosen" / "bin" / "python")
    build(folder, tmp_path / "data", dependencies=True, interpreter=interpreter)
    assert events(capsys)[-1]["text"] == "5 files, 1 package"
    build(folder, tmp_path / "data", dependencies=True, sources=False, interpreter=interpreter)
    assert events(capsys)[-1]["kind"] == "skipped"
    monkeypatch.setattr(index_folder, "_MAX_SECONDS", 0.0)
    build(folder, tmp_path / "new", dependencies=True, sources=False, interpreter=interpreter)
    assert events(capsys) == [{"kind": "skipped", "text": "it and its packages have tables", "share": 0.0}]


@pytest.mark.usefixtures("without_a_server")
def test_a_folder_is_indexed_again_as_its_user_chose(folder: Path, tmp_path: Path, capsys: Any):
    arguments = ["--data-dir", str(tmp_path / "data"), "build-ngrams", str(folder), "--exclude", "0.py"]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    write(folder / "4.py", "till = 4\n")
    build(folder, tmp_path / "data")
    assert events(capsys)[-1]["text"] == "4 files"
