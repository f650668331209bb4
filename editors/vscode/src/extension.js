// Finds the language server, starts and restarts it, and shows its state. The client library registers completions
// and ghost text by itself.
"use strict";

const vscode = require("vscode");
const { LanguageClient, State } = require("vscode-languageclient/node");
const { INSTALL, checkConnection, findServer } = require("./server.js");
const { SECTION, clientSettings, userSetting } = require("./settings.js");

const STATES = new Map([
  [State.Starting, ["$(loading~spin)", "spd-lsp is starting"]],
  [State.Running, ["$(list-selection)", "spd-lsp: click for its status"]],
  [State.Stopped, ["$(warning)", "spd-lsp has stopped"]],
]);
const DOCUMENTS = ["file", "untitled", "vscode-notebook-cell"].map((scheme) => ({ scheme }));

/** The running server's client, the status bar item, the log, how settings are sent, and the last restart. */
const session = { client: undefined, item: undefined, log: undefined, settings: undefined, restarted: Promise.resolve() };

async function start() {
  show(...STATES.get(State.Starting));
  try {
    const program = await findServer();
    const address = userSetting("serverAddress");
    if (address) {
      await checkConnection(program, address);
    }
    const server = { ...program, args: [...program.args, ...(address ? ["connect", address] : ["serve"])] };
    const { options, configuration } = session.settings;
    session.client = new LanguageClient(SECTION, SECTION, server, {
      documentSelector: DOCUMENTS,
      outputChannel: session.log,
      initializationOptions: options,
      middleware: { workspace: { configuration } },
    });
    session.client.onDidChangeState(({ newState }) => STATES.has(newState) && show(...STATES.get(newState)));
    await session.client.start();
  } catch (error) {
    show("$(error)", error.message);
    offerHelp(error); // not awaited: the user may fix the settings before answering
  }
}

async function offerHelp(error) {
  const choice = await vscode.window.showErrorMessage(`spd-lsp: ${error.message}`, "Copy install command", "Open settings");
  if (choice === "Copy install command") {
    await vscode.env.clipboard.writeText(INSTALL);
  } else if (choice === "Open settings") {
    await vscode.commands.executeCommand("workbench.action.openSettings", "spd-lsp.server");
  }
}

async function stop() {
  const client = session.client;
  session.client = undefined;
  if (client?.isRunning()) {
    await client.stop().catch((error) => session.log.warn(error.message)); // a server that hangs is killed
  }
}

/** Restarts are queued: settings may change while a server starts. */
function restart() {
  session.restarted = session.restarted.then(stop).then(start);
  return session.restarted;
}

function show(icon, tooltip) {
  session.item.text = `${icon} spd`;
  session.item.tooltip = tooltip;
}

/** Show why nothing is offered, or how long the last completion took. */
async function showStatus() {
  const text = session.client?.isRunning() ? describe(await session.client.sendRequest("spd-lsp/status")) : session.item.tooltip;
  const choice = await vscode.window.showInformationMessage(`spd-lsp: ${text}`, "Restart", "Show log");
  if (choice === "Restart") {
    await restart();
  } else if (choice === "Show log") {
    session.log.show();
  }
}

function describe({ kind, message, reason, lastPasses, lastMilliseconds }) {
  if (kind !== "normal") {
    return message;
  }
  if (reason) {
    return `no completions: ${reason}`;
  }
  return lastPasses ? `last completion: ${lastPasses} passes, ${lastMilliseconds} ms` : "ready";
}

async function activate(context) {
  session.settings = clientSettings(context.extension.packageJSON);
  session.log = vscode.window.createOutputChannel("spd-lsp", { log: true });
  session.item = vscode.window.createStatusBarItem("status", vscode.StatusBarAlignment.Right);
  session.item.name = "spd-lsp";
  session.item.command = "spd-lsp.status";
  session.item.show();
  context.subscriptions.push(
    session.item,
    session.log,
    vscode.commands.registerCommand("spd-lsp.restart", restart),
    vscode.commands.registerCommand("spd-lsp.status", showStatus),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (["spd-lsp.serverCommand", "spd-lsp.serverAddress"].some((name) => event.affectsConfiguration(name))) {
        setImmediate(restart); // after the client has sent the change: once stopped, it would show an error
      } else if (event.affectsConfiguration(SECTION) && session.client?.isRunning()) {
        session.client.sendNotification("spd-lsp/options", session.settings.options());
      }
    }),
    vscode.workspace.onDidGrantWorkspaceTrust(() => session.client?.isRunning() || restart()),
  );
  await restart();
}

module.exports = { activate, deactivate: stop };
