"""The settings that the VS Code extension sends: the user's, and the Python extension's interpreter."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spd_lsp.lsp.options import Configuration
from spd_lsp.settings import Settings

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs node on PATH")

EXTENSION = Path(__file__).parents[1] / "editors" / "vscode"
VSCODE = """
const user = JSON.parse(process.argv[2]);
exports.workspace = { getConfiguration: () => ({ inspect: (key) => ({ globalValue: user[key] }) }) };
"""
ASK = """
const { ServerSettings } = require(process.argv[1] + "/src/settings.js");
const settings = new ServerSettings(require(process.argv[1] + "/package.json"));
settings.interpreter = process.argv[3] || undefined;
console.log(JSON.stringify(settings.options()));
"""


def options(folder: Path, user: dict[str, Any], interpreter: str = "") -> Settings:
    """What the server makes of the options that it gets."""
    (folder / "vscode").mkdir(exist_ok=True)
    (folder / "vscode" / "index.js").write_text(VSCODE)
    command = [str(shutil.which("node")), "-e", ASK, str(EXTENSION), json.dumps(user), interpreter]
    done = subprocess.run(command, env={"NODE_PATH": str(folder)}, capture_output=True, text=True, check=True)
    configuration = Configuration(Settings())
    configuration.set_options(json.loads(done.stdout))
    assert configuration.take_problems() == []
    return configuration.merged()


def test_the_chosen_interpreter_is_sent_unless_the_user_names_one(tmp_path: Path):
    assert options(tmp_path, {}) == Settings()
    assert options(tmp_path, {"drafts": 5}, "/a/bin/python") == Settings(
        drafts=5, python_interpreter="/a/bin/python"
    )
    named = {"advanced.pythonInterpreter": "/b/bin/python"}
    assert options(tmp_path, named, "/a/bin/python") == Settings(python_interpreter="/b/bin/python")
