"""The VS Code extension's own environment: installed by one window at a time, and updated without a gap."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import TIMEOUT

pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="needs node on PATH"),
    pytest.mark.skipif(sys.platform == "win32", reason="programs here are scripts of sh"),
]

SOURCE = Path(__file__).parents[1] / "editors" / "vscode" / "src" / "environment.js"

# A stand-in of VS Code that shows no progress.
VSCODE = """
exports.ProgressLocation = {};
exports.window = { withProgress: (_, task) => task({ report() {} }, { onCancellationRequested() {} }) };
"""
USE = """
const { OwnEnvironment } = require(process.argv[1]);
const { storage, packed, version, folders, action, all } = JSON.parse(process.argv[2]);
const extension = { packageJSON: { version } };
const context = { globalStorageUri: { fsPath: storage }, extensionPath: packed, extension };
const open = [];
const log = { info() {}, warn: console.error };
const environment = new OwnEnvironment(context, () => open, log);
open.push(...folders); // opened later
async function main() {
  if (action === "remove") environment.removeOthers();
  if (action === "install") {
    await environment.install({ all }).catch((error) => console.error(error.message));
  }
  const { location, isOutdated } = environment;
  console.log(JSON.stringify({ location, isOutdated }));
}
main();
"""

# A Python that makes environments, each with itself as interpreter, and takes some time for what pip installs.
PYTHON = """#!/bin/sh
echo "$*" >> {calls}
case "$*" in
  *"-m venv"*) for last; do :; done; mkdir -p "$last/bin"; cp "$0" "$last/bin/python" ;;
  *"pip install"*) [ ! -e {broken} ] || {{ echo "ERROR: no network"; exit 1; }}; sleep 1 ;;
esac
"""


class Home:
    """A user's machine, with a Python and an extension."""

    def __init__(self, folder: Path) -> None:
        self.storage, self.calls, self.broken = folder / "storage", folder / "calls", folder / "broken"
        self.modules, self.programs, self.packed = folder / "modules", folder / "programs", folder / "extension"
        (self.modules / "vscode").mkdir(parents=True)
        (self.modules / "vscode" / "index.js").write_text(VSCODE)
        (self.packed / "server").mkdir(parents=True)
        (self.packed / "server" / "spd_lsp.tar.gz").touch()
        self.programs.mkdir()
        for name in ("mkdir", "cp", "sleep"):  # and no other Python
            (self.programs / name).symlink_to(str(shutil.which(name)))
        python = self.programs / "python3"
        python.write_text(PYTHON.format(calls=self.calls, broken=self.broken))
        python.chmod(0o755)

    def start(self, action: str, version: str = "2.0", *folders: Path, all: bool = False) -> subprocess.Popen[str]:
        """Open a window that does something with the environment."""
        about = {
            "storage": str(self.storage),
            "packed": str(self.packed),
            "version": version,
            "action": action,
            "all": all,
        }
        command = [str(shutil.which("node")), "-e", USE, str(SOURCE)]
        command += [json.dumps({**about, "folders": list(map(str, folders))})]
        path = os.pathsep.join(map(str, [*folders, self.programs]))
        variables = {"PATH": path, "NODE_PATH": str(self.modules)}
        return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, action: str, version: str = "2.0", *folders: Path) -> tuple[str, bool, str]:
        """Where the server then is, whether it is of another version, and what went wrong."""
        return result(self.start(action, version, *folders))

    def environment(self, version: str) -> str:
        return str(self.storage / f"server-{version}")


def result(window: subprocess.Popen[str]) -> tuple[str, bool, str]:
    output, errors = window.communicate(timeout=TIMEOUT)
    state = json.loads(output)
    return state["location"], state["isOutdated"], errors


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_two_windows_install_once(home: Home):
    """After an update, all windows of a session install at the same time."""
    windows = [home.start("install") for _ in range(3)]
    assert [result(window) for window in windows] == [(home.environment("2.0"), False, "")] * 3
    assert home.calls.read_text().count("-m venv") == 1
    assert not (home.storage / "installing").exists()


def test_torch_is_only_installed_for_a_model_that_needs_it(home: Home):
    result(home.start("install"))
    assert "spd_lsp.tar.gz\n" in home.calls.read_text() and "[models]" not in home.calls.read_text()
    result(home.start("install", all=True))
    assert "spd_lsp.tar.gz[models]\n" in home.calls.read_text()


def test_the_server_of_the_earlier_version_is_used_until_the_new_one_is_there(home: Home):
    home.run("install", "1.0")
    assert home.run("state") == (home.environment("1.0"), True, "")
    home.broken.touch()
    location, is_outdated, error = home.run("install")
    assert (location, is_outdated) == (home.environment("1.0"), True) and "no network" in error
    home.broken.unlink()
    assert home.run("install") == (home.environment("2.0"), False, "")
    assert Path(home.environment("1.0")).exists(), "other windows may still run it"
    home.run("remove")
    assert [path.name for path in home.storage.iterdir()] == ["server-2.0"]


def test_no_python_of_a_folder_is_run_even_if_it_was_opened_later(home: Home, tmp_path: Path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "python3").write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    (folder / "python3").chmod(0o755)
    assert home.run("install", "2.0", folder) == (home.environment("2.0"), False, "")
    assert not (tmp_path / "sprung").exists()
