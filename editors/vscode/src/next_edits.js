// Next edits: the places where the change that was just made is wanted, too, also in other open files and in imported ones.
// They get a mark in the gutter; only keys move the cursor to one, which opens its file, apply it or dismiss it.
"use strict";

const vscode = require("vscode");
const { SECTION } = require("./settings.js");

const PAUSE = 500; // milliseconds after the last change
const MOST = 20; // places
const ICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="3" fill="#4b9fd5"/></svg>`;

class NextEdits {
  constructor(session) {
    this.session = session;
    this.found = []; // `{ uri, document, version, range, text }`, in the order of the files; closed ones have no document
    this.dismissed = new Set();
    this.mark = vscode.window.createTextEditorDecorationType({
      gutterIconPath: vscode.Uri.parse(`data:image/svg+xml;utf8,${encodeURIComponent(ICON)}`),
      overviewRulerColor: new vscode.ThemeColor("editorInfo.foreground"),
    });
    this.subscriptions = [
      this.mark,
      vscode.workspace.onDidChangeTextDocument((event) => this.changed(event)),
      vscode.workspace.onDidOpenTextDocument((document) => this.opened(document)),
      vscode.window.onDidChangeTextEditorSelection(() => this.setContext()),
      vscode.window.onDidChangeVisibleTextEditors(() => this.show(this.found)),
      vscode.window.onDidChangeActiveTextEditor(() => this.setContext()),
    ];
  }

  /** The command ids of the manifest, and what they do. */
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
      const isOn = vscode.workspace.getConfiguration(SECTION).get("nextEdits", false);
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
      const places = edits.map((edit) => this.place(edit)).filter(Boolean);
      const wanted = places.filter((place) => !this.dismissed.has(this.key(place)));
      const rank = (place) => (place.document === document ? "" : place.uri);
      const byPlace = (a, b) => rank(a).localeCompare(rank(b)) || a.range.start.compareTo(b.range.start);
      this.show(wanted.sort(byPlace));
    }
  }

  /** A place in an open document, unless that has changed, or in a closed file. */
  place({ textDocument, range: { start, end }, text }) {
    const uri = vscode.Uri.parse(textDocument.uri).toString();
    const document = vscode.workspace.textDocuments.find((one) => one.uri.toString() === uri);
    const version = textDocument.version ?? undefined;
    const range = new vscode.Range(start.line, start.character, end.line, end.character);
    return document?.version === version ? { uri, document, version, range, text } : undefined;
  }

  /** What is dismissed for good: this text in a line like this, or in this line of a closed file. */
  key({ uri, document, range: { start }, text }) {
    return [uri, document?.lineAt(start.line).text ?? start.line, start.character, text].join("\n");
  }

  show(found) {
    this.found = found.filter(({ document, version }) => document?.version === version);
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

  /** The place that the cursor touches. */
  get current() {
    const editor = vscode.window.activeTextEditor;
    const cursor = editor?.selection.active;
    return this.found.find(({ document, range }) => document === editor?.document && range.contains(cursor));
  }

  setContext() {
    vscode.commands.executeCommand("setContext", "spd-lsp.hasNextEdit", this.found.length > 0);
    vscode.commands.executeCommand("setContext", "spd-lsp.atNextEdit", this.current !== undefined);
  }

  /** Move the cursor to the next place below it, to the first one of another file, or to the first one of this file. */
  async jump() {
    const active = vscode.window.activeTextEditor;
    const here = this.found.filter(({ document }) => document === active?.document);
    const elsewhere = this.found.find(({ document }) => document !== active?.document);
    const next = here.find(({ range }) => range.start.isAfter(active.selection.active)) ?? elsewhere ?? here[0];
    if (next) {
      this.opened(next.document ?? (await vscode.workspace.openTextDocument(vscode.Uri.parse(next.uri))));
      const editor = next.document === active?.document ? active : await vscode.window.showTextDocument(next.document);
      editor.selection = new vscode.Selection(next.range.start, next.range.start);
      editor.revealRange(next.range, vscode.TextEditorRevealType.InCenterIfOutsideViewport);
      this.setContext();
    }
  }

  /** A document was opened: places in its file are places in it, until it changes. */
  opened(document) {
    const there = this.found.filter((place) => !place.document && place.uri === document.uri.toString());
    there.forEach((place) => Object.assign(place, { document, version: document.version }));
  }

  /** Change the place that the cursor touches; one undo takes it back. */
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
