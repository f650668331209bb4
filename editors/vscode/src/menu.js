// The extension's commands, and the menu that the status bar item opens.
"use strict";

const vscode = require("vscode");
const { SECTION, openSettings } = require("./settings.js");
const { summary, whyNothing } = require("./status.js");
const { MEND } = require("./words.js");

const INDEX_FOLDER = "spd-lsp.indexFolder"; // commands of the server
const EXCLUDE_FOLDER = "spd-lsp.excludeFolder";

class Commands {
  /** install: installs the server into the extension's environment. models, ghost, words: see their files. */
  constructor(session, status, log, install, models, ghost, words) {
    Object.assign(this, { session, status, log, install, models, ghost, words });
  }

  /** The commands of the manifest, by id. */
  get handlers() {
    return {
      menu: () => this.openMenu(),
      pause: () => this.pause(),
      snooze: () => this.snooze(),
      automatic: () => this.switchAutomatic(),
      drafts: () => this.chooseDraft(),
      next: () => this.showOther(1),
      previous: () => this.showOther(-1),
      hide: () => this.ghost.hide(),
      words: () => this.words.turnOff(),
      language: () => this.switchLanguage(),
      index: () => this.onFolder(INDEX_FOLDER),
      exclude: () => this.onFolder(EXCLUDE_FOLDER),
      model: () => this.models.choose(),
      why: () => this.explain(),
      install: () => this.install(),
      restart: () => this.session.restart(),
      log: () => this.log.show(),
      settings: () => openSettings("@ext:spd-lsp.spd-lsp"),
    };
  }

  async openMenu() {
    this.ghost.clear(); // the menu takes the focus, and VS Code hides the ghost text
    await this.status.ask();
    const chosen = await vscode.window.showQuickPick(this.menuItems(), { title: "spd-lsp" });
    await chosen?.run();
  }

  menuItems() {
    const { paused } = this.session.settings;
    const document = vscode.window.activeTextEditor?.document;
    const language = document?.languageId;
    const folder = currentFolder();
    const isIndexed = this.status.known.record?.indexed === true;
    const { usage } = this.status.known.record ?? {};
    const isOff = language && disabledLanguages().some((name) => isSame(name, language));
    const item = (icon, label, command) => ({ label: `$(${icon}) ${label}`, run: this.handlers[command] });
    const always = [
      { ...item("question", "Why is there no suggestion?", "why"), detail: summary(this.status.known).lines.join(" \u00b7 ") },
      item("debug-restart", "Restart the server", "restart"),
      item("output", "Show the log", "log"),
      ...(usage ? [{ label: `$(graph) ${usage}`, detail: "on this machine; spd-lsp stats has more", run: () => {} }] : []),
      item("settings-gear", "Open the settings", "settings"),
    ];
    if (!this.session.isRunning) {
      return [item("desktop-download", "Install the server", "install"), ...always];
    }
    return [
      item(paused ? "debug-start" : "debug-pause", paused ? "Resume completions" : "Pause completions", "pause"),
      item("clock", this.status.known.record?.snoozing ? "End the snooze" : "Snooze for 5 minutes", "snooze"),
      ...(language ? [item("list-selection", "Show all drafts", "drafts")] : []),
      ...(language ? [item("circle-slash", `${isOff ? "Turn on" : "Turn off"} for ${nameOf(language)}`, "language")] : []),
      ...(document && this.words.isListing(document) ? [item("eye", MEND, "words")] : []),
      ...(folder && !isIndexed ? [item("database", `Index ${folder.name}`, "index")] : []),
      item("server-environment", "Choose the model", "model"),
      ...always,
    ];
  }

  pause() {
    this.session.setPaused(!this.session.settings.paused);
    return this.status.ask();
  }

  async snooze() {
    await this.answer(() => this.session.snooze());
    return this.status.ask();
  }

  /** Switch between completions on request and completions while typing. */
  switchAutomatic() {
    const settings = vscode.workspace.getConfiguration(SECTION);
    return settings.update("automatic", !settings.get("automatic", true), vscode.ConfigurationTarget.Global);
  }

  /** List all drafts at the cursor, numbered as in ghost text, and insert the chosen one. */
  async chooseDraft() {
    const editor = vscode.window.activeTextEditor;
    const shown = this.ghost.left();
    const found = editor && (await this.answer(() => this.session.drafts(editor)));
    if (!found?.length) {
      return found && this.explain();
    }
    const { active } = editor.selection;
    const same = (drafts, { text }) => drafts.find((one) => one.text === text);
    const drafts = [...shown.map((one) => same(found, one) ?? one), ...found.filter((one) => !same(shown, one))];
    const [word] = /[\p{L}\p{N}_]*$/u.exec(editor.document.lineAt(active).text.slice(0, active.character));
    this.ghost.clear(); // the list takes the focus, and VS Code hides the ghost text
    const items = drafts.map(({ text, details }, index) => {
      const [first, ...others] = (word + text).trim().replace(/\$\(/g, "\\$&").split("\n"); // a literal $(...), not an icon
      return { label: `${index + 1}. ${first}`, description: details, detail: others.join(" \u23ce ") || undefined, text };
    });
    const chosen = await vscode.window.showQuickPick(items, { title: "spd-lsp: all drafts" });
    return chosen && editor.edit((edit) => edit.insert(active, chosen.text));
  }

  /** Show another draft as ghost text. */
  async showOther(step) {
    await vscode.commands.executeCommand(`editor.action.inlineSuggest.show${step > 0 ? "Next" : "Previous"}`);
    this.ghost.move(step);
  }

  /** Turn completions off or on for the language of the active file. */
  async switchLanguage() {
    const language = vscode.window.activeTextEditor?.document.languageId;
    if (language) {
      const others = disabledLanguages().filter((other) => !isSame(other, language));
      const disabled = others.length < disabledLanguages().length ? others : [...others, language];
      await vscode.workspace.getConfiguration(SECTION).update("disabledLanguages", disabled, vscode.ConfigurationTarget.Global);
    }
  }

  /** Run a command of the server on the active file's folder; the server shows the progress. */
  async onFolder(command) {
    const folder = currentFolder();
    if (!folder) {
      vscode.window.showInformationMessage("spd-lsp: open a folder first.");
    } else {
      await this.ask(command, String(folder.uri));
    }
  }

  async explain() {
    const hidden = await this.words.hiding().catch(() => undefined); // the server may be stopping
    if (hidden) {
      return this.words.explain(hidden);
    }
    await this.status.ask();
    vscode.window.showInformationMessage(`spd-lsp: ${whyNothing(this.status.known)}`);
  }

  /** Run a command of the server; return its result, or show why it failed. */
  ask(command, ...args) {
    return this.answer(() => this.session.execute(command, ...args));
  }

  async answer(request) {
    if (!this.session.isRunning) {
      vscode.window.showErrorMessage(`spd-lsp: ${this.session.state.message}`);
      return undefined;
    }
    try {
      return await request();
    } catch (error) {
      vscode.window.showErrorMessage(`spd-lsp: ${error.message}`);
      return undefined;
    }
  }
}

/** VS Code's name of a language. Example: `python` -> "Python". */
function nameOf(language) {
  const languages = vscode.extensions.all.flatMap(({ packageJSON }) => packageJSON.contributes?.languages ?? []);
  return languages.find(({ id, aliases }) => id === language && aliases?.length)?.aliases[0] ?? language;
}

/** Whether a setting's entry names this language. */
function isSame(name, language) {
  return name.toLowerCase() === language.toLowerCase();
}

function disabledLanguages() {
  return vscode.workspace.getConfiguration(SECTION).get("disabledLanguages", []);
}

/** The workspace folder of the active file, or the first one. */
function currentFolder() {
  const document = vscode.window.activeTextEditor?.document;
  return (document && vscode.workspace.getWorkspaceFolder(document.uri)) ?? vscode.workspace.workspaceFolders?.[0];
}

module.exports = { Commands };
