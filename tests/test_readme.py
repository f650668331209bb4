"""The documents tell the truth: README's commands print what it shows, and tables list what there is."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spd_lsp.cli import main
from spd_lsp.settings import Settings

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
USING = (ROOT / "spd_lsp" / "README.md").read_text(encoding="utf-8")
SETTINGS = (ROOT / "editors" / "README.md").read_text(encoding="utf-8")
CONSOLE = re.findall(r"```console\n(.*?)```", README, flags=re.DOTALL)


def masked(text):
    """What must agree line by line: numbers and paths differ between machines, later drafts between versions."""
    text = re.sub(r"^( +[2-9] ).*", r"\1 a later draft", text, flags=re.MULTILINE)
    text = re.sub(r"^(table|skipped): .*", r"\1: #", text, flags=re.MULTILINE)
    return [re.sub(r"[\d.,]*\d", "#", line.rstrip()) for line in text.splitlines() if line.strip()]


def steps(block):
    """A console block as (command, output) pairs."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [tuple(part.split("\n", 1)) for part in parts]


def camel_case(name):
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


@pytest.fixture
def clone(tmp_path):
    """A copy of the sources, as a fresh clone would be."""
    others = shutil.ignore_patterns(
        ".git", ".venv", "venv", "node_modules", "build", "dist", "__pycache__", ".*_cache"
    )
    return shutil.copytree(ROOT, tmp_path / "spd-lsp", ignore=others)


@pytest.fixture
def shell(tmp_path, clone):
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "SPD_LSP_DATA_DIR": str(tmp_path / "data"),
    }

    def shell(command):
        done = subprocess.run(
            command, shell=True, cwd=clone, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return shell


@pytest.mark.slow
def test_the_console_blocks_print_what_they_show(shell):
    shown_steps = [step for block in CONSOLE for step in steps(block)]
    assert sum("spd-lsp" in command for command, _ in shown_steps) >= 3
    for command, shown in shown_steps:
        assert masked(shell(command)) == masked(shown), command


@pytest.mark.parametrize("document, in_editors", [(SETTINGS, True), (USING, False)])
def test_the_settings_tables_list_every_setting_with_its_default(document: str, in_editors: bool):
    rows = re.findall(r"^\| `(\w+)` \| `(.*?)` \| (.*?) \|$", document, flags=re.MULTILINE)
    expected = [
        (camel_case(field.name), json.dumps(field.default), field.metadata["description"])
        for field in dataclasses.fields(Settings)
        if field.metadata["in_editors"] == in_editors
    ]
    assert rows == expected


@pytest.mark.parametrize("command", sorted(main.commands))
def test_every_command_is_told_of(command):
    assert f"`spd-lsp {command}" in USING
