// Puts the parts of the extension together: the server's session, its status, and the commands.
"use strict";

const vscode = require("vscode");
const { Ghost } = require("./ghost.js");
const { Commands } = require("./menu.js");
const { OwnEnvironment } = require("./environment.js");
const { LargerModel } = require("./larger_model.js");
const { Models } = require("./models.js");
const { NotInstalled, folderPaths } = require("./server.js");
const { NextEdits } = require("./next_edits.js");
const { Session } = require("./session.js");
const { SECTION, ServerSettings, openSettings, userSetting } = require("./settings.js");
const { StatusItem } = require("./status_item.js");
const { Words } = require("./words.js");

const RESTARTING = ["spd-lsp.serverCommand", "spd-lsp.serverAddress"]; // settings that need another server

let session;

/** Whether the user's model needs PyTorch: all do that are not GGUF files. */
function needsAll() {
  return !/^(starter|none|(ollama|hf):.*|.*\.gguf)$/i.test(userSetting("model") ?? "starter");
}

async function activate(context) {
  const log = vscode.window.createOutputChannel("spd-lsp", { log: true });
  const environment = new OwnEnvironment(context, folderPaths, log);
  const isUpdate = (error) => error instanceof NotInstalled && environment.isOutdated; // the user agreed before
  const fail = (error) => (isUpdate(error) ? install() : offerHelp(error, install));
  session = new Session(new ServerSettings(context.extension.packageJSON), environment, log, fail);
  const status = new StatusItem(session);
  const ghost = new Ghost();
  const languages = context.extension.packageJSON.activationEvents.map((event) => event.replace("onLanguage:", ""));
  const words = new Words(session, context.globalState, languages);
  session.onGhostText = (...shown) => ghost.show(...shown);
  session.onRequest = (document, position, selected) => {
    selected && ghost.clear();
    words.note(document, position, selected);
  };

  async function install({ all = needsAll() } = {}) {
    try {
      await environment.install({ all });
      await session.restart();
    } catch (error) {
      log.error(error.message);
      const choice = await vscode.window.showErrorMessage(`spd-lsp: ${error.message}`, "Show the log");
      choice && log.show();
    }
  }

  /** Install the server of this version; until then, or without a network, an earlier version runs. */
  async function update() {
    try {
      await environment.install({ all: needsAll() });
      await session.restart();
    } catch (error) {
      log.warn(error.message);
    }
  }

  /** Install the packages that PyTorch models need; return false if the environment is not the extension's. */
  async function installAll() {
    const isOwn = environment.holds(session.program?.command);
    isOwn && (await environment.install({ all: true }));
    isOwn && (await session.restart());
    return isOwn;
  }

  const nextEdits = new NextEdits(session);
  const models = new Models(session, log, installAll);
  const larger = new LargerModel(context.globalState, () => models.choose());
  status.onRecord = (record) => larger.note(record);
  const commands = new Commands(session, status, log, () => install(), models, ghost, words);
  const handlers = { ...commands.handlers, ...nextEdits.handlers };
  context.subscriptions.push(
    log,
    status,
    ghost,
    nextEdits,
    ...Object.entries(handlers).map(([name, run]) => vscode.commands.registerCommand(`spd-lsp.${name}`, run)),
    vscode.workspace.onDidChangeConfiguration(applyConfiguration),
    vscode.workspace.onDidChangeTextDocument(({ document }) => session.noteEdit(document)),
    vscode.workspace.onDidGrantWorkspaceTrust(() => session.isRunning || session.restart()),
    vscode.window.onDidChangeActiveTextEditor((editor) => (status.refresh(), session.sendCursor(editor))),
    vscode.window.onDidChangeTextEditorSelection((event) => session.sendCursor(event.textEditor)),
  );
  environment.removeOthers();
  await session.restart();
  if (environment.isOutdatedProgram(session.program?.command)) {
    update(); // not awaited: it takes minutes
  }
}

function applyConfiguration(event) {
  if (RESTARTING.some((name) => event.affectsConfiguration(name))) {
    setImmediate(() => session.restart()); // after the client has sent the change: a stopped client would show an error
  } else if (event.affectsConfiguration(SECTION)) {
    session.sendSettings();
  }
}

/** Show why there is no server, with remedies. Not awaited: the user may fix the settings before answering. */
async function offerHelp(error, install) {
  const offers = error instanceof NotInstalled ? ["Install", "Open settings"] : ["Open settings"];
  const choice = await vscode.window.showErrorMessage(`spd-lsp: ${error.message}`, ...offers);
  if (choice === "Install") {
    await install();
  } else if (choice === "Open settings") {
    await openSettings("spd-lsp.server");
  }
}

module.exports = { activate, deactivate: () => session?.stop() };
