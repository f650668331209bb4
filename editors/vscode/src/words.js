// VS Code's list of words of the open files. While a list is open, VS Code shows only ghost text that continues the
// selected item, and Tab takes that item. This detects hidden drafts, and turns off lists of mere words.
"use strict";

const vscode = require("vscode");

const PAUSE = 500; // milliseconds after the last key
const TOLD = "toldOfWords"; // on this machine
const MEND = "Show drafts instead of words";
const IS_OFF = { "editor.wordBasedSuggestions": "off" };

class Words {
  /** memory: state kept on this machine. languages: the ids of languages that the server completes. */
  constructor(session, memory, languages) {
    Object.assign(this, { session, memory, languages });
    this.last = undefined; // the last place of ghost text, and the selected item there
  }

  /** Whether words are listed in a document that the server completes. */
  isListing(document) {
    const { languageId } = document;
    return this.languages.includes(languageId) && vscode.workspace.getConfiguration("editor", document).get("wordBasedSuggestions") !== "off";
  }

  /** Called when VS Code requests ghost text at a place, where a list may be open. */
  note(document, position, selected) {
    this.last = { document, position, selected };
    clearTimeout(this.timer);
    if (selected && !this.memory.get(TOLD)) {
      this.timer = setTimeout(() => this.tell().catch(() => {}), PAUSE); // the server may be stopping
    }
  }

  /** Tell the user, once, that the list of words hides a draft. */
  async tell() {
    const hidden = await this.hiding();
    if (hidden?.isWord && !this.memory.get(TOLD)) {
      await this.memory.update(TOLD, true);
      await this.explain(hidden);
    }
  }

  /** The item that hides drafts at the cursor, if any: `{ text, isWord }`. */
  async hiding() {
    const { document, position, selected } = this.last ?? {};
    const editor = vscode.window.activeTextEditor;
    if (!selected || !this.session.isRunning || editor?.document !== document || !editor.selection.active.isEqual(position)) {
      return undefined;
    }
    const typed = document.getText(new vscode.Range(selected.range.start, position));
    const drafts = await this.session.ghostTexts(document, position);
    const isHidden = drafts.length > 0 && !drafts.some((draft) => (typed + draft).startsWith(selected.text));
    return isHidden ? { text: selected.text, isWord: await this.isWord(document, position, selected.text) } : undefined;
  }

  async isWord(document, position, text) {
    const items = this.isListing(document) ? await this.session.othersItems(document, position) : [];
    return items.some(({ kind, label }) => kind === vscode.CompletionItemKind.Text && (label.label ?? label) === text);
  }

  async explain({ text, isWord }) {
    const list = isWord ? "VS Code's list of words" : "a list of suggestions";
    const message = `spd-lsp: ${list} hides a draft, and Tab takes ${text} from it. Escape closes the list.`;
    const choice = await vscode.window.showInformationMessage(message, ...(isWord ? [MEND] : []));
    return choice && this.turnOff();
  }

  /** Turn lists of words off for the languages that the server completes, by one entry in the user's settings. */
  turnOff() {
    const languages = this.languages.map((language) => `[${language}]`).join("");
    return vscode.workspace.getConfiguration().update(languages, IS_OFF, vscode.ConfigurationTarget.Global);
  }
}

module.exports = { MEND, Words };
