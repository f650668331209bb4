"""The configuration file: read by commands and the server, overridden by editors, the environment and flags."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from spd_lsp import command_options
from spd_lsp.cli import main
from spd_lsp.command_options import config_path, read_config
from tests.lsp.test_server_process import process

CODE = "title = 1\ntitles = [title]\ntitled = titles\nprint(ti"  # n-grams alone complete it


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration file of a user who has none yet."""
    monkeypatch.setattr(command_options.platformdirs, "user_config_path", lambda name, appauthor: tmp_path / name)
    config_path().parent.mkdir()
    return config_path()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "demo.py"
    path.write_text(CODE)
    return path


def run(*arguments: object, **environment: str) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)), env=environment)


def completed(*arguments: object, **environment: str) -> dict[str, Any]:
    done = run("complete", *arguments, "--json", **environment)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_every_value_is_read_by_its_name_in_kebab_case(file: Path, tmp_path: Path):
    assert read_config() == ({}, [])
    file.write_text(
        f"\ufeffmodel = 'none'\nmax-tokens = 8\nngram-weight = 2\ndata-dir = '{tmp_path}'\n"
        "disabled-languages = ['go']\nalpha = 0.5\n"
    )
    values, problems = read_config()
    assert problems == []
    assert values == {
        "model": "none",
        "max_tokens": 8,
        "ngram_weight": 2.0,
        "data_dir": str(tmp_path),
        "disabled_languages": ("go",),
        "alpha": 0.5,
    }
    assert isinstance(values["ngram_weight"], float)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("draft = 5", ": unknown setting 'draft'; did you mean 'drafts'?"),
        ("colour = 'red'", ": unknown setting 'colour'; there are alpha, automatic, "),
        ("max-tokens = 'many'", ": 'max-tokens' must be an integer, not 'many'"),
        ("model = './mine'", ": 'model' must be `starter`, `none`, the full path"),
    ],
)
def test_a_wrong_line_is_named_with_what_was_expected_and_spares_the_others(file: Path, line: str, problem: str):
    file.write_text(f"automatic = false\n{line}\n")
    values, problems = read_config()
    assert values == {"automatic": False}
    assert len(problems) == 1 and problems[0].startswith(f"{file}{problem}")


@pytest.mark.parametrize(
    ("content", "found"),
    [(b"drafts = 5\ndelay = = 3\n", "line 2, column 9"), (b"\xff", "utf-8")],
)
def test_what_is_not_toml_is_named_by_its_line(file: Path, content: bytes, found: str):
    file.write_bytes(content)
    values, problems = read_config()
    assert values == {} and len(problems) == 1
    assert problems[0].startswith(f"{file} must be TOML, such as `drafts = 5`, but is not: ")
    assert found in problems[0]


def test_flags_override_the_environment_which_overrides_the_file(file: Path, program: Path):
    file.write_text("model = 'none'\ndrafts = 1\n")
    by_file = completed(program)
    assert (by_file["model"], len(by_file["completions"])) == ("none", 1)
    assert completed(program, SPD_LSP_MODEL="starter")["model"] == "starter"
    by_flag = completed(program, "--model", "none", "-k", "3", SPD_LSP_MODEL="no-such-model")
    assert by_flag["model"] == "none" and len(by_flag["completions"]) > 1
    assert len(completed(program, "--set", "drafts=3")["completions"]) > 1


def test_commands_name_what_is_wrong_and_exit_with_2_but_help_helps(file: Path, program: Path):
    file.write_text("draft = 5\ndelay = -1\n")
    for arguments in (["complete", program], ["ngrams", "list"], ["stats"]):
        done = run(*arguments)
        assert done.exit_code == 2
        assert done.stderr == (
            f"Error: {file}: unknown setting 'draft'; did you mean 'drafts'?\n"
            f"{file}: 'delay' must be from 0 to 10000, not -1\n"
        )
        assert run(*arguments, "--help").exit_code == 0


def test_doctor_says_where_each_value_comes_from_and_what_is_wrong(file: Path, tmp_path: Path):
    file.write_text(
        "drafts = 5\nmax-tokens = 24\nautomatic = 1\ndisabled-languages = ['Python', 'scheem', 'jade']\n"
    )
    done = run("--data-dir", tmp_path / "data", "doctor", SPD_LSP_MODEL="none")
    configuration = [line.split(maxsplit=2) for line in done.stdout.splitlines()][:5]
    assert configuration == [
        ["error", "configuration", f"{file}: 'automatic' must be true or false, not 1"],
        ["ok", "drafts", f"5, from {file}"],
        ["ok", "disabled-languages", f"('Python', 'scheem', 'jade'), from {file}"],
        ["ok", "data-dir", f"'{tmp_path / 'data'}', from --data-dir"],
        ["ok", "model", "'none', from SPD_LSP_MODEL"],
    ]
    assert done.exit_code == 1 and "1 problem found" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no variable chooses the folder")
async def test_the_server_shows_what_is_wrong_once_and_editors_override_the_rest(tmp_path: Path):
    (tmp_path / "spd-lsp").mkdir()
    file = tmp_path / "spd-lsp" / "config.toml"
    file.write_text("model = 'none'\nautomatic = false\ndrafts = 0\n")
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    command = ("-m", "spd_lsp", "--data-dir", str(tmp_path / "data"), "serve")
    async with process(*command, env=environment) as (_, editor):
        await editor.start_and_load()
        status = await editor.status()
        assert (status["model"], status["automatic"]) == ("none", False)
        editor.notify("spd-lsp/options", {"automatic": True, "dataDir": "/elsewhere"})
        assert (await editor.status())["automatic"] is True
        [shown] = editor.received("window/showMessage")
        assert shown["message"] == f"spd-lsp: {file}: 'drafts' must be from 1 to 16, not 0; ignored"
