"""Parts of the VS Code extension: its menu, its status bar, the settings and the cursor that it sends."""

from __future__ import annotations

from pathlib import Path

import pytest

from spd_lsp.lsp.options import Configuration
from spd_lsp.settings import Settings
from tests.node import needs_node, run_node

pytestmark = needs_node

MENU_VSCODE = """
exports.workspace = {
  workspaceFolders: [{ name: "httpx", uri: "file:///httpx" }],
  getConfiguration: () => ({ get: (name, usual) => usual }),
};
exports.window = { activeTextEditor: { document: { languageId: "python" } } };
exports.workspace.getWorkspaceFolder = () => undefined;
exports.extensions = { all: [] };
"""
MENU = """
const { Commands } = require(sources + "/menu.js");
const session = { isRunning: true, settings: {}, state: { kind: "running" } };
const status = { known: { session: session.state, record: { kind: "normal", indexed: values[0] } } };
const { Words } = require(sources + "/words.js");
const words = new Words(session, {}, ["python"]);
const items = new Commands(session, status, undefined, undefined, undefined, undefined, words).menuItems();
console.log(JSON.stringify(items.map(({ label }) => label.replace(/^\\S+ /, ""))));
"""


@pytest.mark.parametrize("indexed", [None, True])
def test_a_folder_is_to_be_indexed_unless_it_is(tmp_path: Path, indexed: bool | None):
    offered = run_node(tmp_path, MENU, indexed, modules={"vscode": MENU_VSCODE})
    assert ("Index httpx" in offered) is not indexed
    assert {"Choose the model", "Show drafts instead of words", "Show the log"} <= set(offered)


STATUS_VSCODE = """
exports.StatusBarAlignment = {};
exports.MarkdownString = class {};
exports.window = { state: { focused: true }, createStatusBarItem: () => ({ show() {}, dispose() {} }) };
"""
STATUS = """
const { StatusItem } = require(sources + "/status_item.js");
const failing = () => Promise.reject(new Error("the connection was closed"));
const session = { state: { kind: "running" }, settings: {}, status: failing };
const status = new StatusItem(session);
(async () => {
  await status.refresh();
  await status.asking;
  const shown = [status.item.text];
  session.status = async () => ({ kind: "normal" });
  await status.refresh();
  console.log(JSON.stringify([...shown, status.item.text]));
  process.exit(); // without the timers
})();
"""


def test_the_status_bar_asks_again_after_a_request_that_failed(tmp_path: Path):
    shown = run_node(tmp_path, STATUS, modules={"vscode": STATUS_VSCODE})
    assert shown == ["$(warning) spd", "$(list-selection) spd"]


SETTINGS_VSCODE = """
const user = JSON.parse(process.argv[2])[0];
exports.workspace = { getConfiguration: () => ({ inspect: (key) => ({ globalValue: user[key] }) }) };
"""
SETTINGS = """
const { ServerSettings } = require(sources + "/settings.js");
const settings = new ServerSettings(require(sources + "/../package.json"));
const ofFolder = settings.ofFolder({ enabled: true, drafts: 3, disabledLanguages: [], ...values[0] });
console.log(JSON.stringify([settings.options(), ofFolder]));
"""


@pytest.mark.parametrize("user", [{}, {"drafts": 5}])
def test_what_the_user_set_is_sent_and_no_defaults_that_would_hide_the_configuration_file(
    tmp_path: Path, user: dict[str, int]
):
    configuration = Configuration(Settings())
    options, of_folder = run_node(tmp_path, SETTINGS, user, modules={"vscode": SETTINGS_VSCODE})
    configuration.set_options(options)
    assert (configuration.merged(), configuration.take_problems()) == (Settings(**user), [])
    assert of_folder == user


CURSOR_MODULES = {
    "vscode": """
const match = (selector, document) => (selector.some((one) => one.scheme === document.scheme) ? 10 : 0);
exports.languages = { match };
""",
    "vscode-languageclient/node": "exports.CloseAction = exports.ErrorAction = {};",
}
CURSOR = """
const { Session } = require(sources + "/session.js");
const session = new Session({}, {}, {}, () => {});
const sent = [];
const converter = {
  asTextDocumentIdentifier: (document) => ({ uri: document.uri }),
  asPosition: (position) => ({ line: position.line, character: position.character }),
};
const sendNotification = (...it) => sent.push(it);
const client = { isRunning: () => true, code2ProtocolConverter: converter, sendNotification };
const selection = { active: { line: 3, character: 7 } };
const editor = (scheme) => ({ document: { scheme, uri: scheme + ":a" }, selection });
session.sendCursor(editor("file")); // no server yet
session.client = client;
session.sendCursor(undefined); // no editor has the focus
session.sendCursor(editor("output")); // no document of ours
session.sendCursor(editor("file"));
console.log(JSON.stringify(sent));
"""


def test_the_server_is_told_where_the_cursor_is_in_documents_that_it_knows(tmp_path: Path):
    place = {"textDocument": {"uri": "file:a"}, "position": {"line": 3, "character": 7}}
    assert run_node(tmp_path, CURSOR, modules=CURSOR_MODULES) == [["spd-lsp/cursor", place]]
