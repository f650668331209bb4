// Next edits: the places of a document where a change that was made twice is probably wanted, too.
// They are marked in the gutter; keys move the cursor to one, apply it or dismiss it.
"use strict";

const vscode = require("vscode");
const { SECTION } = require("./settings.js");

const PAUSE = 500; // milliseconds after the last change
const MOST = 20; // places
const ICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="3" fill="#4b9fd5"/></svg>`;

class NextEdits {
  constructor(session) {
    this.session = session;
    this.found = []; // `{ document, version, range, text }`, from top to bottom
    this.dismissed = new Set();
    this.mark = vscode.window.createTextEditorDecorationType({
      gutterIconPath: vscode.Uri.parse(`data:image/svg+xml;utf8,${encodeURIComponent(ICON)}`),
      overviewRulerColor: new vscode.ThemeColor("editorInfo.foreground"),
    });
    this.subscriptions = [
      this.mark,
      vscode.workspace.onDidChangeTextDocument((event) => this.changed(event)),
      vscode.window.onDidChangeTextEditorSelection(() => this.setContext()),
      vscode.window.onDidChangeVisibleTextEditors(() => this.show(this.found)),
      vscode.window.onDidChangeActiveTextEditor(() => this.setContext()),
    ];
  }

  /** The commands of the manifest, by id. */
  get handlers() {
    return {
      nextEdit: () => this.jump(),
      applyEdit: () => this.apply(),
      dismissEdits: () => this.dismiss(),
    };
  }

  changed({ document, contentChanges }) {
    if (contentChanges.length && document === vscode.window.activeTextEditor?.document) {
      this.show([]);
      clearTimeout(this.timer);
      const isOn = vscode.workspace.getConfiguration(SECTION).get("nextEdits", true);
      this.timer = isOn ? setTimeout(() => this.ask().catch(() => {}), PAUSE) : undefined; // the server may be stopping
    }
  }

  async ask() {
    const editor = vscode.window.activeTextEditor;
    if (!this.session.isRunning || !editor) {
      return;
    }
    const { document } = editor;
    const { version } = document;
    const edits = await this.session.nextEdits(editor, MOST);
    if (document.version === version && vscode.window.activeTextEditor === editor) {
      const places = edits.map(({ range: { start, end }, text }) => {
        const range = new vscode.Range(start.line, start.character, end.line, end.character);
        return { document, version, range, text };
      });
      const wanted = places.filter((place) => !this.dismissed.has(this.key(place)));
      this.show(wanted.sort((a, b) => a.range.start.compareTo(b.range.start)));
    }
  }

  /** The key of a dismissed proposal: its text and its line. */
  key({ document, range: { start }, text }) {
    return [document.uri, document.lineAt(start.line).text, start.character, text].join("\n");
  }

  show(found) {
    this.found = found.filter(({ document, version }) => document.version === version);
    vscode.window.visibleTextEditors.forEach((editor) => {
      const here = this.found.filter(({ document }) => document === editor.document);
      const options = here.map(({ range, text }) => ({
        range,
        hoverMessage: new vscode.MarkdownString().appendCodeblock(text || "(delete)"),
      }));
      editor.setDecorations(this.mark, options);
    });
    this.message?.dispose();
    const total = this.found.length;
    this.message = total ? vscode.window.setStatusBarMessage(`$(edit) ${total} more to change`) : undefined;
    this.setContext();
  }

  /** The proposal at the cursor. */
  get current() {
    const editor = vscode.window.activeTextEditor;
    const cursor = editor?.selection.active;
    return this.found.find(({ document, range }) => document === editor?.document && range.contains(cursor));
  }

  setContext() {
    vscode.commands.executeCommand("setContext", "spd-lsp.hasNextEdit", this.found.length > 0);
    vscode.commands.executeCommand("setContext", "spd-lsp.atNextEdit", this.current !== undefined);
  }

  /** Move the cursor to the next proposal below, or to the first one. */
  jump() {
    const editor = vscode.window.activeTextEditor;
    const here = this.found.filter(({ document }) => document === editor?.document);
    const next = here.find(({ range }) => range.start.isAfter(editor.selection.active)) ?? here[0];
    if (next) {
      editor.selection = new vscode.Selection(next.range.start, next.range.start);
      editor.revealRange(next.range, vscode.TextEditorRevealType.InCenterIfOutsideViewport);
      this.setContext();
    }
  }

  /** Apply the proposal at the cursor, as one undo step. */
  apply() {
    const { current } = this;
    return current && vscode.window.activeTextEditor.edit((edit) => edit.replace(current.range, current.text));
  }

  dismiss() {
    this.found.forEach((place) => this.dismissed.add(this.key(place)));
    this.show([]);
  }

  dispose() {
    clearTimeout(this.timer);
    this.message?.dispose();
    this.subscriptions.forEach((one) => one.dispose());
  }
}

module.exports = { NextEdits };
