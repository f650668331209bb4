"""The commands do what their help says, and report errors in one line with the remedy."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import click
import pytest

from spd_lsp.cli import main
from tests.conftest import PACKAGE, STARTER_FILES

PROGRAM = """\
import os


class Shelf:
    def __init__(self, books):
        self.books = books

    def titles(self):
        return [book.title for book in self.books]


def print_titles(shelf):
    for title in shelf.titles():
        print(ti
"""
END_OF_PROGRAM = f"14:{len('        print(ti') + 1}"


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "shelf.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def test_help_does_not_import_torch():
    script = (
        "import sys; from spd_lsp.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "slow = {'torch', 'pygls', 'numpy', 'tokenizers', 'spd_lsp.commands.complete'} & set(sys.modules)\n"
        "sys.exit(f'imported {slow}' if slow else 0)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "build-ngrams" in result.stdout


WITHOUT_TORCH = (
    "import sys; sys.modules.update(torch=None, transformers=None); from spd_lsp.cli import main; main()"
)


def run_without_torch(*arguments):
    command = [sys.executable, "-c", WITHOUT_TORCH, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_plain_installation_completes_with_the_starter(program):
    done = run_without_torch("complete", f"{program}:{END_OF_PROGRAM}")
    assert (done.returncode, done.stderr) == (0, "loading spd-lsp-starter.gguf in llama.cpp\n")
    assert "tle" in done.stdout


def test_without_llama_cpp_ngrams_alone_complete_and_the_starter_says_so_in_a_sentence(program, tmp_path):
    absent = "import sys; sys.modules.update(xllamacpp=None, torch=None); from spd_lsp.cli import main; main()"
    # An empty cache: the vocabulary is read from the file itself.
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run(model):
        command = [sys.executable, "-c", absent, "complete", f"{program}:{END_OF_PROGRAM}", "--model", model]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    done = run("none")
    assert (done.returncode, done.stderr) == (0, "")
    assert "tle" in done.stdout
    assert " 0 forward passes" in done.stdout
    refused = run("starter")
    assert refused.returncode == 1
    [line] = refused.stderr.splitlines()
    assert line.startswith("Error: models need llama.cpp here") and "--model none" in line


def test_what_needs_torch_says_how_to_install_it(program):
    shutil.copy(STARTER_FILES / "tokenizer.json", program.parent)
    (program.parent / "config.json").write_text("{}", encoding="utf-8")
    (program.parent / "model.safetensors").touch()
    done = run_without_torch("complete", "--model", str(program.parent), f"{program}:1:1")
    assert done.returncode == 1
    needs = r"needs torch and transformers, .*; run: .*spd-lsp\[models\]"
    assert re.search(rf"(?m)^Error: .*{needs}", done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    script = WITHOUT_TORCH.replace("main()", "import spd_lsp; spd_lsp.superposed_decoding")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert re.search(rf"ModuleNotFoundError: spd_lsp.superposed_decoding {needs}", done.stderr), done.stderr


@pytest.mark.parametrize("command", sorted(main.commands))
def test_every_command_explains_itself_and_its_options(command):
    def check(described):
        assert described.help
        for parameter in described.params:
            assert parameter.param_type_name == "argument" or parameter.help, parameter.name
        for inner in getattr(described, "commands", {}).values():
            check(inner)

    _, loaded, _ = main.resolve_command(click.Context(main), [command])
    check(loaded)
    assert loaded.get_short_help_str() == main.commands[command].get_short_help_str()


def test_complete_prints_drafts_their_probability_and_the_passes(invoke, program):
    output = invoke("complete", f"{program}:{END_OF_PROGRAM}").stdout
    *drafts, summary = output.splitlines()
    assert drafts
    assert all(re.match(r" +\d +(\d+\.\d%)?  \S", line) for line in drafts)
    assert re.fullmatch(
        r"\d+ drafts?, \d+ forward passes for \d+ tokens, \d+ ms; n-grams: open files"
        r"; fill-in-the-middle: starter",
        summary,
    )


def test_complete_marks_what_only_begins_a_line(invoke, tmp_path):
    (tmp_path / "demo.py").write_text("import argparse\n\nparser = argparse.")
    place = f"{tmp_path}/demo.py:3:19"
    completions = json.loads(invoke("complete", place, "--json").stdout)["completions"]
    table = invoke("complete", place).stdout
    shown = table.splitlines()
    marked = [line.endswith(" …") for line in shown[: len(completions)]]
    assert marked == [not one["ends"] for one in completions]
    assert len({one["text"] for one in completions}) == len(completions)
    assert any(marked)
    assert [one["probability"] is None for one in completions] == marked, "more is to be written behind them"
    printed = [float(p) for p in re.findall(r"^ +\d +([\d.]+)%  ", table, re.MULTILINE)]
    assert printed == [round(100 * one["probability"], 1) for one in completions if one["probability"] is not None]
    assert printed and printed == sorted(printed, reverse=True)
    floor = completions[0]["probability"] + 0.01
    said = invoke("complete", place, "--json", "--while-typing", "--set", f"min-probability={floor}").stdout
    assert json.loads(said)["completions"] == [], "a beginning never comes first"


def test_the_object_holds_what_is_documented_and_nothing_else(invoke, program):
    answer = json.loads(invoke("complete", f"{program}:{END_OF_PROGRAM}", "--json").stdout)
    page = (PACKAGE / "README.md").read_text(encoding="utf-8")
    table = page.partition("### complete --json")[2].partition("\n## ")[0]
    fields = set(
        re.findall(r"`(?:completions\[\])?\.?(\w+)`", "\n".join(re.findall(r"^\| (`.*?) \|", table, re.M)))
    )
    completion = answer["completions"][0]
    assert {*answer, *completion} - {"text"} == fields and "text" in completion
    assert all(one["kind"] in ("model", "copies", "names") for one in answer["completions"])


def test_without_a_position_the_end_of_the_file_is_completed(invoke, tmp_path):
    path = tmp_path / "demo.py"
    path.write_text("import argparse\n\nparser = argparse.")
    at_end, named = (json.loads(invoke("complete", f"{path}{end}", "--json").stdout) for end in ("", ":3:19"))
    assert at_end["completions"] == named["completions"] != []


def test_standard_input_is_completed_as_the_text_of_the_file(invoke, program):
    arguments = ("complete", "--json", f"{program}:{END_OF_PROGRAM}")
    stored = json.loads(invoke(*arguments).stdout)
    source = program.read_text(encoding="utf-8")
    program.unlink()
    typed = json.loads(invoke(*arguments, "-", stdin=source).stdout)
    assert typed["completions"] == stored["completions"]
    secret = invoke("complete", ".env:1:3", "-", stdin="a=b\n").stdout
    assert secret == "no draft: this file may hold secrets\n"


def test_while_typing_complete_is_as_silent_as_an_editor(invoke, program):
    every = json.loads(invoke("complete", f"{program}:{END_OF_PROGRAM}", "--json").stdout)["completions"]
    floor = every[0]["probability"]
    likely = [one for one in every if (one["probability"] or 0) >= floor]
    for minimum, expected in ((floor, likely), (floor + 0.01, [])):
        asked = ("complete", f"{program}:{END_OF_PROGRAM}", "--json", "--set", f"min-probability={minimum}")
        assert json.loads(invoke(*asked, "--while-typing").stdout)["completions"] == expected
        assert json.loads(invoke(*asked).stdout)["completions"] == every
    said = invoke("complete", f"{program}:4:9", "--while-typing").stdout  # class Sh|elf
    assert said == "no draft: the cursor is inside a word\n"
    said = invoke("complete", f"{program}:4:7", "--while-typing").stdout
    assert said == "no draft: a word goes on right of the cursor\n"


@pytest.mark.slow
def test_nothing_needs_a_folder_that_can_be_written_in_the_home(program):
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), "/proc/nowhere")
    command = [sys.executable, "-m", "spd_lsp", "complete", f"{program}:{END_OF_PROGRAM}", "--json"]
    done = subprocess.run(command, env={**os.environ, **nowhere}, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["completions"]


def test_any_setting_can_be_changed_for_one_completion(invoke, program):
    position = f"{program}:{END_OF_PROGRAM}"
    both = ("--set", "drafts=1", "--set", "maxOrder=2")
    assert len(json.loads(invoke("complete", position, "--json", *both).stdout)["completions"]) == 1
    said = invoke("complete", position, "--set", 'disabledLanguages=["Python"]').stdout
    assert said == "no draft: completions are off for python\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("drafts", "--set 'drafts' must be NAME=VALUE, such as --set drafts=5"),
        ("temperatur=2", "unknown setting 'temperatur'; did you mean 'temperature'?"),
        (
            "colour=red",
            "--set 'colour=red': unknown setting 'colour'; there are alpha, automatic, automatic-menu, ",
        ),
        ("drafts=many", "--set drafts must be an integer, not 'many'"),
        ("drafts=99", "--set drafts must be from 1 to 16, not 99"),
    ],
)
def test_a_change_that_no_setting_allows_is_reported(invoke, program, change, message):
    assert message in invoke("complete", f"{program}:1:1", "--set", change, status=1).output


@pytest.mark.parametrize(
    ("position", "message"),
    [
        ("shelf.py:12", "is neither FILE nor FILE:LINE:COL, such as app.py:12:8"),
        ("gone.py", "cannot read gone.py: No such file"),
        ("gone.py:1:1", "cannot read .*gone.py: No such file"),
        ("shelf.py:0:1", "has no line 0, only 1 to 15"),
        ("shelf.py:1:99", "line 1 .*has no column 99, only 1 to 10"),
        ("latin.py:1:1", "is not UTF-8 .*byte 0xe9 in position 5"),
        (".:1:1", ": Is a directory"),
        ("shelf.py:1:١", "is neither FILE nor FILE:LINE:COL, such as app.py:12:8"),
    ],
)
def test_an_invalid_position_is_reported(invoke, program, monkeypatch, position, message):
    monkeypatch.chdir(program.parent)
    (program.parent / "latin.py").write_bytes("s = 'é'\n".encode("latin-1"))
    assert re.search(message, invoke("complete", position, status=1).output)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--model", "no-such-model"], 1, "there is no model 'no-such-model'"),
        (["--model", "qwen2.5-coder-0.5b"], 1, "`spd-lsp models get NAME` downloads"),
        (["--device", "abacus"], 2, "'--device': must be auto, cpu, mps, cuda or cuda:N, not 'abacus'"),
        (["--device", "mps"], 1, "device 'mps' is not available"),
    ],
)
def test_an_invalid_model_or_device_is_reported(invoke, program, arguments, status, message):
    assert message in invoke("complete", f"{program}:1:1", *arguments, status=status).output


@pytest.mark.parametrize(
    ("name", "why"), [("notes.md", "completions are off for markdown"), (".env", "this file may hold secrets")]
)
def test_a_file_without_completions_is_refused_with_the_reason(invoke, tmp_path, name, why):
    path = tmp_path / name
    path.write_text("import os\n", encoding="utf-8")
    assert invoke("complete", f"{path}:2:1").output == f"no draft: {why}\n"
    assert json.loads(invoke("complete", "--json", f"{path}:2:1").stdout)["reason"] == why
