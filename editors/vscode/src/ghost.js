// The number of the draft that ghost text shows, such as `(1/3)`, at the end of its line. VS Code does not
// report when ghost text disappears: the number disappears when the cursor leaves the typed part, and on Escape.
"use strict";

const vscode = require("vscode");

class Ghost {
  constructor() {
    this.drafts = []; // `{ text, details }` of each draft
    this.shown = 0; // index of the visible draft
    this.mark = vscode.window.createTextEditorDecorationType({
      isWholeLine: true, // else it would precede the ghost text
      after: { color: new vscode.ThemeColor("editorGhostText.foreground"), margin: "0 0 0 1.5em" },
    });
    this.subscriptions = [
      this.mark,
      vscode.window.onDidChangeTextEditorSelection(({ textEditor }) => textEditor === this.editor && this.follow()),
      vscode.window.onDidChangeActiveTextEditor(() => this.clear()),
      vscode.window.onDidChangeWindowState(({ focused }) => focused || this.clear()),
    ];
  }

  /** Record the drafts of an answer at a position. The visible draft stays visible if it is among them. */
  show(document, start, drafts) {
    const editor = vscode.window.activeTextEditor;
    if (editor?.document === document && editor.selection.active.isEqual(start)) {
      const isSame = this.start?.isEqual(start) && this.editor === editor;
      const isShown = ({ text }) => isSame && text === this.drafts[this.shown]?.text;
      const shown = Math.max(drafts.findIndex(isShown), 0);
      this.clear();
      Object.assign(this, { editor, start, drafts, shown });
      this.draw();
    }
  }

  /** Record that VS Code shows another draft. */
  move(step) {
    const { length } = this.drafts;
    this.shown = length && (this.shown + step + length) % length;
    this.draw();
  }

  /** Called when the cursor moves: the number stays while typed text agrees with the draft. */
  follow() {
    const isTyped = this.editor.document.version !== this.version && this.editor.selection.active.isAfter(this.start);
    isTyped && this.isLeft(this.drafts[this.shown]) ? this.draw() : this.clear();
  }

  /** The text typed since the answer. */
  get typed() {
    return this.editor.document.getText(new vscode.Range(this.start, this.editor.selection.active));
  }

  /** Whether a draft continues the typed text. */
  isLeft(draft) {
    return draft?.text.startsWith(this.typed) && draft.text !== this.typed;
  }

  /** The rest of each draft, in the order of their numbers. */
  left() {
    const drafts = this.drafts.filter((one) => this.isLeft(one));
    return drafts.map(({ text, details }) => ({ text: text.slice(this.typed.length), details }));
  }

  draw() {
    const { editor, start, drafts, shown } = this;
    const contentText = drafts.length > 1 ? `(${shown + 1}/${drafts.length})` : "";
    const marks = contentText ? [{ range: new vscode.Range(start, start), renderOptions: { after: { contentText } } }] : [];
    this.version = editor?.document.version;
    editor?.setDecorations(this.mark, marks);
    vscode.commands.executeCommand("setContext", "spd-lsp.hasNumber", contentText !== "");
  }

  clear() {
    this.drafts = [];
    this.draw();
    this.editor = undefined;
  }

  /** Hide ghost text and its number. */
  hide() {
    this.clear();
    return vscode.commands.executeCommand("editor.action.inlineSuggest.hide");
  }

  dispose() {
    this.subscriptions.forEach((one) => one.dispose());
  }
}

module.exports = { Ghost };
