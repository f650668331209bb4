"""Next edits in the VS Code extension: marks, and the keys that jump, apply and dismiss."""

from __future__ import annotations

from pathlib import Path

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
const editor = {
  document: { uri: "file:///a.py", version: 1, lineAt: () => ({ text }) },
  selection: { active: new Position(0, 0) },
  marks: 0,
  setDecorations(mark, places) { this.marks = places.length; },
  revealRange() {},
  edit(change) { change({ replace: (range, text) => this.applied.push([range.start.line, text]) }); },
  applied: [],
};
module.exports = {
  Position, Range, listeners, editor,
  Selection: class { constructor(active) { this.active = active; } },
  Uri: { parse: String },
  ThemeColor: class {},
  MarkdownString: class { appendCodeblock() { return this; } },
  TextEditorRevealType: {},
  commands: { executeCommand() {} },
  workspace: {
    getConfiguration: () => ({ get: () => true }),
    onDidChangeTextDocument: on("changed"),
  },
  window: {
    activeTextEditor: editor,
    visibleTextEditors: [editor],
    createTextEditorDecorationType: () => ({ dispose() {} }),
    setStatusBarMessage: () => ({ dispose() {} }),
    onDidChangeTextEditorSelection: on("selection"),
    onDidChangeActiveTextEditor: on("editor"),
    onDidChangeVisibleTextEditors: on("editors"),
  },
};
"""
SCRIPT = """
const { editor } = require("vscode");
const { NextEdits } = require(sources + "/next_edits.js");
const range = (line) => ({ start: { line, character: 4 }, end: { line, character: 9 } });
const answer = [7, 3].map((line) => ({ range: range(line), text: "breadth" }));
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
    script = SCRIPT.replace("STEPS", steps)
    expected = [2, 0, 3, 7, [[3, "breadth"]], 0, 0]
    assert run_node(tmp_path, script, modules={"vscode": VSCODE}) == expected


def test_what_is_found_stays_until_its_document_changes(tmp_path: Path):
    steps = """
  edits.show(edits.found);
  seen.push(edits.found.length);
  editor.document.version = 2;
  edits.show(edits.found);
  seen.push(edits.found.length);"""
    assert run_node(tmp_path, SCRIPT.replace("STEPS", steps), modules={"vscode": VSCODE}) == [2, 0]
