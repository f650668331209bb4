// The commands of the extension, and the menu of them behind the status bar's item.
"use strict";

const vscode = require("vscode");
const { SECTION } = require("./settings.js");
const { summary, whyNothing } = require("./status.js");

const INDEX_FOLDER = "spd-lsp.indexFolder"; // commands of the server
const EXCLUDE_FOLDER = "spd-lsp.excludeFolder";
const LIST_TABLES = "spd-lsp.listTables";
const USE_TABLES = "spd-lsp.useTables";

class Commands {
  /** install: installs the server into the extension's environment. */
  constructor(session, status, log, install) {
    Object.assign(this, { session, status, log, install });
  }

  /** The command ids of the manifest, and what they do. */
  get handlers() {
    return {
      menu: () => this.openMenu(),
      pause: () => this.pause(),
      language: () => this.switchLanguage(),
      index: () => this.onFolder(INDEX_FOLDER),
      exclude: () => this.onFolder(EXCLUDE_FOLDER),
      tables: () => this.chooseTables(),
      why: () => this.explain(),
      install: () => this.install(),
      restart: () => this.session.restart(),
      log: () => this.log.show(),
      settings: () => vscode.commands.executeCommand("workbench.action.openSettings", "@ext:spd-lsp.spd-lsp"),
    };
  }

  async openMenu() {
    await this.status.ask();
    const chosen = await vscode.window.showQuickPick(this.menuItems(), { title: "spd-lsp" });
    await chosen?.run();
  }

  menuItems() {
    const { paused } = this.session.settings;
    const language = vscode.window.activeTextEditor?.document.languageId;
    const folder = currentFolder();
    const isOff = language && disabledLanguages().includes(language);
    const item = (icon, label, command) => ({ label: `$(${icon}) ${label}`, run: this.handlers[command] });
    const always = [
      { ...item("question", "Why is there no suggestion?", "why"), detail: summary(this.status.known).lines.join(" \u00b7 ") },
      item("debug-restart", "Restart the server", "restart"),
      item("output", "Show the log", "log"),
      item("settings-gear", "Open the settings", "settings"),
    ];
    if (!this.session.isRunning) {
      return [item("desktop-download", "Install the server", "install"), ...always];
    }
    return [
      item(paused ? "debug-start" : "debug-pause", paused ? "Resume completions" : "Pause completions", "pause"),
      ...(language ? [item("circle-slash", `${isOff ? "Turn on" : "Turn off"} for ${language}`, "language")] : []),
      ...(folder ? [item("database", `Index ${folder.name}`, "index"), item("list-filter", "Choose the n-gram tables", "tables")] : []),
      ...always,
    ];
  }

  pause() {
    this.session.setPaused(!this.session.settings.paused);
    return this.status.ask();
  }

  /** Turn completions off, or on again, for the language of the file that is being edited. */
  async switchLanguage() {
    const language = vscode.window.activeTextEditor?.document.languageId;
    if (language) {
      const others = disabledLanguages().filter((other) => other !== language);
      const disabled = others.length < disabledLanguages().length ? others : [...others, language];
      await vscode.workspace.getConfiguration(SECTION).update("disabledLanguages", disabled, vscode.ConfigurationTarget.Global);
    }
  }

  /** Have the server do something with the folder that is being edited; the server shows the progress. */
  async onFolder(command) {
    const folder = currentFolder();
    if (!folder) {
      vscode.window.showInformationMessage("spd-lsp: open a folder first.");
    } else {
      await this.ask(command, String(folder.uri));
    }
  }

  async chooseTables() {
    const folder = currentFolder();
    const tables = folder && (await this.ask(LIST_TABLES, String(folder.uri)));
    if (!tables?.length) {
      vscode.window.showInformationMessage("spd-lsp: there are no n-gram tables yet. Index the folder first.");
      return;
    }
    const items = tables.map(({ name, detail, isUsed }) => ({ label: name, description: detail, picked: isUsed }));
    const options = { canPickMany: true, title: `n-gram tables for ${folder.name}; none: those that fit` };
    const chosen = await vscode.window.showQuickPick(items, options);
    if (chosen) {
      await this.ask(USE_TABLES, String(folder.uri), ...chosen.map(({ label }) => label));
    }
  }

  async explain() {
    await this.status.ask();
    vscode.window.showInformationMessage(`spd-lsp: ${whyNothing(this.status.known)}`);
  }

  /** The result of a command of the server; a failure is shown. */
  async ask(command, ...args) {
    if (!this.session.isRunning) {
      vscode.window.showErrorMessage(`spd-lsp: ${this.session.state.message}`);
      return undefined;
    }
    try {
      return await this.session.execute(command, ...args);
    } catch (error) {
      vscode.window.showErrorMessage(`spd-lsp: ${error.message}`);
      return undefined;
    }
  }
}

function disabledLanguages() {
  return vscode.workspace.getConfiguration(SECTION).get("disabledLanguages", []);
}

/** The workspace folder of the file that is being edited, or the first one. */
function currentFolder() {
  const document = vscode.window.activeTextEditor?.document;
  return (document && vscode.workspace.getWorkspaceFolder(document.uri)) ?? vscode.workspace.workspaceFolders?.[0];
}

module.exports = { Commands };
