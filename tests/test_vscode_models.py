"""Choosing a model in VS Code: it is set once it is there and completes; else the setting stays as it is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.node import needs_node, run_node

pytestmark = [needs_node, pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT")]

# Chooses what is asked for; cancels a progress as soon as it says so.
VSCODE = """
const told = { errors: [], progress: [], settings: {}, items: [] };
exports.told = told;
exports.asked = {};
exports.ProgressLocation = {};
exports.ConfigurationTarget = { Global: 1 };
exports.QuickPickItemKind = { Separator: -1 };
exports.window = {
  showErrorMessage: async (text) => void told.errors.push(text),
  showWarningMessage: async () => exports.asked.answer,
  showOpenDialog: async () => exports.asked.files?.map((fsPath) => ({ fsPath })),
  showQuickPick: async (items) => {
    told.items = (await items).map(({ label, description = "" }) => `${label}: ${description}`);
    return (await items).find(({ label }) => label === exports.asked.label);
  },
  withProgress: (_, task) => {
    const onCancellationRequested = (stop) => ((token.stop = stop), { dispose() {} });
    const token = { isCancellationRequested: false, onCancellationRequested };
    const report = ({ message }) => {
      told.progress.push(message);
      if (exports.asked.cancels && message.includes("99")) {
        token.isCancellationRequested = true;
        token.stop();
      }
    };
    return task({ report }, token);
  },
};
const update = async (key, value) => (told.settings[key] = value);
exports.workspace = { getConfiguration: () => ({ inspect: () => undefined, update }) };
"""

PROGRAM = """
const [models, ...args] = process.argv.slice(2);
const name = args.at(-1);
const line = (record) => console.log(JSON.stringify(record));
if (args[0] === "--json") {
  const here = { path: "/a", bytes: 5e8, fits: true, format: "GGUF" };
  const stored = { ...here, name: "hf:me/a:q8_0" };
  const offer = { name: "larger", bytes: 2e9, licence: "MIT", install: "" };
  const install = "pip install 'spd-lsp[models]'";
  line([stored, offer, { ...offer, name: "torch", install }]);
} else if (name === "hf:me/a:q8_0") {
  process.stderr.write("a warning\\nError: the file is damaged; fetch it again\\n");
  process.exitCode = 1;
} else if (name === "larger") {
  line({ status: "downloading larger: 99%" });
  process.on("SIGINT", () => process.exit(130));
  const last = () => (line({ status: "trying hf:me/larger:q8_0" }), line({ model: "hf:me/larger:q8_0" }));
  setTimeout(last, 300);
} else {
  line({ model: name });
}
"""

CHOOSE = """
const [program, asked] = values;
const vscode = require("vscode");
const { Models } = require(sources + "/models.js");
Object.assign(vscode.asked, asked);
const session = { state: {}, program: { command: process.execPath, args: [program], options: {} } };
const log = { error() {} };
new Models(session, log, async () => asked.isOwn).choose().then(() => console.log(JSON.stringify(vscode.told)));
"""


def chosen(folder: Path, **asked: Any) -> Any:
    """What VS Code shows and sets when a user chooses so."""
    folder.mkdir(exist_ok=True)
    program = folder / "program.js"
    program.write_text(PROGRAM)
    return run_node(folder, CHOOSE, str(program), asked, modules={"vscode": VSCODE})


def test_what_is_here_and_what_suits_the_machine_is_listed_with_its_size(tmp_path: Path):
    told = chosen(tmp_path)
    assert told["items"] == [
        "on this machine: ",
        "starter: the bundled model",
        "hf:me/a:q8_0: 0.50 GB · GGUF",
        "$(folder-opened) A GGUF file ...: ",
        "to be downloaded: ",
        "larger: 2.00 GB · MIT",
        "torch: 2.00 GB · MIT · needs PyTorch",
    ]
    assert told["settings"] == {} and told["errors"] == []


def test_a_model_is_set_once_it_has_been_fetched_and_tried(tmp_path: Path):
    told = chosen(tmp_path, label="larger")
    assert told["settings"] == {"model": "hf:me/larger:q8_0"}
    assert "downloading larger: 99%" in told["progress"]


def test_a_file_is_tried_before_it_is_set(tmp_path: Path):
    told = chosen(tmp_path, label="$(folder-opened) A GGUF file ...", files=["/models/mine.gguf"])
    assert told["settings"] == {"model": "/models/mine.gguf"}
    assert chosen(tmp_path / "again", label="$(folder-opened) A GGUF file ...")["settings"] == {}


def test_whatever_fails_the_setting_stays_and_the_reason_is_shown_whole(tmp_path: Path):
    told = chosen(tmp_path, label="hf:me/a:q8_0")
    assert told["settings"] == {}
    assert told["errors"] == ["spd-lsp: the file is damaged; fetch it again"]


def test_a_cancelled_download_sets_nothing_and_is_no_error(tmp_path: Path):
    told = chosen(tmp_path, label="larger", cancels=True)
    assert (told["settings"], told["errors"]) == ({}, [])


@pytest.mark.parametrize("is_own", [True, False])
def test_packages_are_added_to_the_extensions_own_server_only(tmp_path: Path, is_own: bool):
    told = chosen(tmp_path, label="torch", answer="Install", isOwn=is_own)
    assert told["settings"] == ({"model": "torch"} if is_own else {})
    assert told["errors"] == ([] if is_own else [
        "spd-lsp: the server is not the extension's own. Run in a terminal: pip install 'spd-lsp[models]'"
    ])  # fmt: skip
