"""What the VS Code extension tells the server of the cursor."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs node on PATH")

SOURCE = Path(__file__).parents[1] / "editors" / "vscode" / "src" / "session.js"

MODULES = {
    "vscode": """
const match = (selector, document) => (selector.some((one) => one.scheme === document.scheme) ? 10 : 0);
exports.languages = { match };
""",
    "vscode-languageclient/node": "exports.CloseAction = exports.ErrorAction = {};",
}
USE = """
const { Session } = require(process.argv[1]);
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
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.js").write_text(text)
    copied = shutil.copytree(SOURCE.parent, tmp_path / "src") / SOURCE.name  # away from installed modules
    done = subprocess.run(
        [str(shutil.which("node")), "-e", USE, str(copied)],
        env=os.environ | {"NODE_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    sent: list[Any] = json.loads(done.stdout)
    place = {"textDocument": {"uri": "file:a"}, "position": {"line": 3, "character": 7}}
    assert sent == [["spd-lsp/cursor", place]]
