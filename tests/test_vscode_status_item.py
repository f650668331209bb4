"""The VS Code extension's item in the status bar goes on asking, whatever became of a request."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs node on PATH")

SOURCE = Path(__file__).parents[1] / "editors" / "vscode" / "src" / "status_item.js"

VSCODE = """
exports.StatusBarAlignment = {};
exports.MarkdownString = class {};
exports.window = { state: { focused: true }, createStatusBarItem: () => ({ show() {}, dispose() {} }) };
"""
USE = """
const { StatusItem } = require(process.argv[1]);
const failing = { status: %s };
const session = { state: { kind: "running" }, settings: {}, ...failing };
const status = new StatusItem(session);
(async () => {
  await status.refresh();
  await status.asking;
  console.log(status.item.text);
  session.status = async () => ({ kind: "normal" });
  await status.refresh();
  console.log(status.item.text);
  process.exit(); // without the timers
})();
"""


@pytest.mark.parametrize(
    "failing",
    ["() => undefined.sendRequest()", "() => Promise.reject(new Error('the connection was closed'))"],
    ids=["no client", "closed"],
)
def test_a_request_that_fails_is_not_the_last(tmp_path: Path, failing: str):
    (tmp_path / "vscode").mkdir()
    (tmp_path / "vscode" / "index.js").write_text(VSCODE)
    command = [str(shutil.which("node")), "-e", USE % failing, str(SOURCE)]
    environment = os.environ | {"NODE_PATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n") == ["$(warning) spd", "$(list-selection) spd", ""], done.stderr
