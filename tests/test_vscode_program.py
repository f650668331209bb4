"""The VS Code extension runs nothing that lies in a folder that is open: which program it takes, from where."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="needs node on PATH"),
    pytest.mark.skipif(sys.platform == "win32", reason="programs here are scripts of sh"),
]

SOURCES = Path(__file__).parents[1] / "editors" / "vscode" / "src"
CHOICE = SOURCES / "program.js"
ASK = """
const { serverOf } = require(process.argv[1]);
const [command, around] = JSON.parse(process.argv[2]);
try {
  console.log(JSON.stringify({ found: serverOf(command, around) ?? null }));
} catch (error) {
  console.log(JSON.stringify({ refused: error.message }));
}
"""


class Place:
    """A workspace that brings a program of its own, and an installed one."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.installed = folder / "workspace", folder / "bin"
        for where in (self.workspace / "bin", self.installed):
            where.mkdir(parents=True)
        self.program = program(self.installed)
        self.hostile = program(self.workspace / "bin")
        program(self.workspace)

    def ask(self, *command: str, trusted: bool = False, **env: str) -> dict[str, Any]:
        """What the extension would run, where the workspace is the working folder as well."""
        around = {"folders": [str(self.workspace)], "trusted": trusted, "env": env}
        arguments = [str(shutil.which("node")), "-e", ASK, str(CHOICE), json.dumps([command, around])]
        done = subprocess.run(arguments, cwd=self.workspace, capture_output=True, text=True, check=True)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


def program(folder: Path, name: str = "spd-lsp") -> Path:
    file = folder / name
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return file


def path(*entries: object) -> str:
    return os.pathsep.join(map(str, entries))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_program_on_the_path_is_run_by_its_full_path_and_away_from_the_workspace(place: Place):
    found = place.ask("spd-lsp", "--x", PATH=path(place.installed))["found"]
    assert (found["command"], found["args"]) == (str(place.program), ["--x"])
    assert found["options"]["cwd"] == str(place.installed)


@pytest.mark.parametrize("entry", ["", "bin", "{workspace}/bin", "{workspace}/bin/../bin"])
@pytest.mark.parametrize("trusted", [False, True])
def test_no_entry_of_the_path_leads_into_the_workspace(place: Place, entry: str, trusted: bool):
    entry = entry.format(workspace=place.workspace)
    assert place.ask("spd-lsp", trusted=trusted, PATH=entry) == {"found": None}
    found = place.ask("spd-lsp", trusted=trusted, PATH=path(entry, place.installed))["found"]
    assert found["command"] == str(place.program)
    assert found["options"]["env"]["PATH"] == str(place.installed), "nor do those of the server"


def test_links_do_not_lead_into_the_workspace(place: Place, tmp_path: Path):
    (tmp_path / "link").symlink_to(place.workspace / "bin")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "spd-lsp").symlink_to(place.hostile)
    assert place.ask("spd-lsp", PATH=path(tmp_path / "link", tmp_path / "linked")) == {"found": None}
    (tmp_path / "shown").symlink_to(place.workspace)  # the workspace is itself a link: both names are known
    place.workspace, real = tmp_path / "shown", place.workspace
    assert place.ask("spd-lsp", PATH=path(real / "bin", place.workspace / "bin")) == {"found": None}


def test_a_named_program_of_the_workspace_is_run_only_if_the_workspace_is_trusted(place: Place):
    """Such as that of a virtual environment there, which a person has named in their own settings."""
    assert place.ask(str(place.hostile), trusted=True)["found"]["command"] == str(place.hostile)
    assert "is not trusted" in place.ask(str(place.hostile))["refused"]
    assert place.ask(str(place.program))["found"]["command"] == str(place.program)


def test_a_relative_name_is_refused(place: Place):
    refused = place.ask("bin/spd-lsp", trusted=True, PATH=path(place.installed))["refused"]
    assert "Give the program's full path" in refused


def test_python_imports_nothing_of_the_workspace(place: Place, tmp_path: Path):
    """`python3 -m spd_lsp` in a workspace would import what lies there."""
    paths = path("", ".", place.workspace, tmp_path / "mine")
    python = program(place.installed, "python3")
    found = place.ask("python3", "-m", "spd_lsp", PATH=path(place.installed), PYTHONPATH=paths, LANG="C")["found"]
    assert found["command"] == str(python)
    env = found["options"]["env"]
    assert (env["PYTHONPATH"], env["PYTHONSAFEPATH"], env["LANG"]) == (str(tmp_path / "mine"), "1", "C")
    bare = place.ask("python3", PATH=path(place.installed), PYTHONPATH="")["found"]["options"]["env"]
    assert "PYTHONPATH" not in bare


def candidates(home: Path, **places: Any) -> list[list[str]]:
    """The commands that the extension would try, in order."""
    given = {"interpreters": [], "folders": [], "own": str(home / "own"), "env": {}, "home": str(home), **places}
    script = "console.log(JSON.stringify(require(process.argv[1]).candidates(JSON.parse(process.argv[2]))))"
    arguments = [str(shutil.which("node")), "-e", script, str(SOURCES / "locations.js"), json.dumps(given)]
    commands: list[list[str]] = json.loads(subprocess.run(arguments, capture_output=True, check=True).stdout)
    return commands


def installed(folder: Path) -> Path:
    """A program `spd-lsp` in a folder that is created."""
    folder.mkdir(parents=True)
    return program(folder)


def test_the_chosen_environment_comes_before_the_path_and_tools_after_it(tmp_path: Path):
    chosen = installed(tmp_path / "chosen" / "bin")
    venv = installed(tmp_path / "work" / ".venv" / "bin")
    linked = installed(tmp_path / ".local" / "bin")
    uv = installed(tmp_path / ".local" / "share" / "uv" / "tools" / "spd-lsp" / "bin")
    pipx = installed(tmp_path / ".local" / "share" / "pipx" / "venvs" / "spd-lsp" / "bin")
    own = installed(tmp_path / "own" / "bin")
    tried = candidates(
        tmp_path, interpreters=[str(chosen.parent / "python")], folders=[str(tmp_path / "work"), str(tmp_path)]
    )
    paths = [[str(path)] for path in (chosen, venv, linked, uv, pipx, own)]
    assert tried == [*paths[:2], ["spd-lsp"], *paths[2:], ["python3", "-m", "spd_lsp"]]


def test_the_environment_that_the_readme_makes_is_looked_at(tmp_path: Path):
    made = re.findall(r"python3 -m venv ~/(\S+)", (SOURCES.parents[2] / "README.md").read_text())
    assert len(made) == 1
    folder = tmp_path / made[0] / "bin"
    folder.mkdir(parents=True)
    assert [str(program(folder))] in candidates(tmp_path)
