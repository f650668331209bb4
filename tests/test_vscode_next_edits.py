"""Next edits in the VS Code extension: marks, and the keys that jump, apply and dismiss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.node import needs_node, run_node

pytestmark = needs_node

VSCODE = """
const listeners = {};
const on = (name) => (listener) => ((listeners[name] = listener), { dispose() {} });
const before = (a, b) => a.line < b.line || (a.line === b.line && a.character < b.character);
class Position {
  constructor(line, character) { Object.assign(this, { line, character }); }
  compareTo(other) { return before(this, other) ? -1 : before(other, this) ? 1 : 0; }
  isAfter(other) { return before(other, this); }
}
class Range {
  constructor(line, start, endLine, end) {
    Object.assign(this, { start: new Position(line, start), end: new Position(endLine, end) });
  }
  contains(at) { return !before(at, this.start) && !before(this.end, at); }
}
const text = "use(width)";
const uris = ["file:///a.py", "file:///b.py", "file:///closed.py"];
const all = uris.map((uri) => ({ uri, version: 1, lineAt: () => ({ text }) }));
const documents = all.slice(0, 2);
const [editor, other, closed] = all.map((document) => ({
  document,
  selection: { active: new Position(0, 0) },
  marks: 0,
  setDecorations(mark, places) { this.marks = places.length; },
  revealRange() {},
  edit(change) { change({ replace: (range, text) => this.applied.push([range.start.line, text]) }); },
  applied: [],
}));
module.exports = {
  Position, Range, listeners, editor, other, closed,
  Selection: class { constructor(active) { this.active = active; } },
  Uri: { parse: String },
  ThemeColor: class {},
  MarkdownString: class { appendCodeblock() { return this; } },
  TextEditorRevealType: {},
  commands: { executeCommand() {} },
  workspace: {
    textDocuments: documents,
    getConfiguration: () => ({ get: () => true }),
    onDidChangeTextDocument: on("changed"),
    onDidOpenTextDocument: on("opened"),
    async openTextDocument(uri) {
      documents.push(closed.document);
      return closed.document;
    },
  },
  window: {
    activeTextEditor: editor,
    visibleTextEditors: [editor, other],
    async showTextDocument(document) {
      const found = [editor, other, closed].find((one) => one.document === document);
      return (module.exports.window.activeTextEditor = found);
    },
    createTextEditorDecorationType: () => ({ dispose() {} }),
    setStatusBarMessage: () => ({ dispose() {} }),
    onDidChangeTextEditorSelection: on("selection"),
    onDidChangeActiveTextEditor: on("editor"),
    onDidChangeVisibleTextEditors: on("editors"),
  },
};
"""
SCRIPT = """
const { editor, other, closed, workspace } = require("vscode");
const { NextEdits } = require(sources + "/next_edits.js");
const range = (line) => ({ start: { line, character: 4 }, end: { line, character: 9 } });
const place = (line, uri = "file:///a.py", version = 1) => (
  { range: range(line), text: "breadth", textDocument: { uri, version } }
);
const unopened = (line) => place(line, "file:///closed.py", null);
const answer = [place(7), place(3), ...OTHERS];
const session = { isRunning: true, nextEdits: async () => answer };
const edits = new NextEdits(session);
const at = () => editor.selection.active.line;
(async () => {
  const seen = [];
  await edits.ask();
STEPS
  edits.dispose();
  console.log(JSON.stringify(seen));
})();
"""


def run(tmp_path: Path, steps: str, others: str = "[]") -> Any:
    script = SCRIPT.replace("OTHERS", others).replace("STEPS", steps)
    return run_node(tmp_path, script, modules={"vscode": VSCODE})


def test_only_keys_move_the_cursor_and_change_the_text_and_what_is_dismissed_stays_away(tmp_path: Path):
    steps = """
  seen.push(editor.marks, at());
  edits.apply(); // not there yet
  await edits.jump();
  seen.push(at());
  edits.apply();
  await edits.jump();
  seen.push(at(), editor.applied);
  edits.dismiss();
  seen.push(editor.marks);
  await edits.ask();
  seen.push(editor.marks);"""
    assert run(tmp_path, steps) == [2, 0, 3, 7, [[3, "breadth"]], 0, 0]


def test_places_in_another_open_file_are_marked_there_and_come_after_those_of_this_one(tmp_path: Path):
    steps = """
  seen.push(editor.marks, other.marks, edits.found.length);
  await edits.jump();
  await edits.jump();
  seen.push(at(), other.selection.active.line);
  await edits.jump();
  seen.push(other.selection.active.line);
  edits.apply();
  seen.push(other.applied, editor.applied);"""
    others = '[place(5, "file:///b.py"), place(6, "file:///b.py", 2), place(7, "file:///closed.py")]'
    assert run(tmp_path, steps, others) == [2, 1, 3, 7, 0, 5, [[5, "breadth"]], []]


def test_a_key_opens_a_closed_file_and_jumps_there_and_what_is_dismissed_there_stays_away(tmp_path: Path):
    steps = """
  seen.push(edits.found.length, workspace.textDocuments.length);
  edits.dismiss();
  await edits.ask();
  seen.push(edits.found.length);
  edits.dismissed.clear();
  await edits.ask();
  for (let n = 0; n < 3; n++) await edits.jump();
  seen.push(workspace.textDocuments.length, closed.selection.active.line);
  edits.apply();
  seen.push(closed.applied, editor.applied);
  closed.document.version = 2;
  edits.show(edits.found);
  seen.push(edits.found.length);"""
    expected = [4, 2, 0, 3, 5, [[5, "breadth"]], [], 2]
    assert run(tmp_path, steps, "[unopened(5), unopened(6)]") == expected
