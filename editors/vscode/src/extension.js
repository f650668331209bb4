// Finds the language server, starts and restarts it, and shows its state. Completions are the server's own matter:
// the client library registers the menu and the ghost text by itself.
"use strict";

const vscode = require("vscode");
const { LanguageClient, State } = require("vscode-languageclient/node");
const { INSTALL, findServer, reach } = require("./server.js");
const { SECTION, own, wiring } = require("./settings.js");

const STATES = new Map([
  [State.Starting, ["$(loading~spin)", "spd-lsp is starting"]],
  [State.Running, ["$(list-selection)", "spd-lsp: click for its status"]],
  [State.Stopped, ["$(warning)", "spd-lsp has stopped"]],
]);
const DOCUMENTS = ["file", "untitled", "vscode-notebook-cell"].map((scheme) => ({ scheme }));

/** What lives as long as the extension: the client of the running server, the item in the status bar, the last restart. */
const session = { client: undefined, item: undefined, log: undefined, wiring: undefined, restarted: Promise.resolve() };

async function start() {
  show(...STATES.get(State.Starting));
  try {
    const found = await findServer();
    const address = own("serverAddress");
    if (address) {
      await reach(found, address);
    }
    const server = { ...found, args: [...found.args, ...(address ? ["connect", address] : ["serve"])] };
    const { options, configuration } = session.wiring;
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
    offerHelp(error); // not awaited: the settings may be mended before the message is answered
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
    await client.stop().catch((error) => session.log.warn(error.message)); // one that hangs is killed
  }
}

/** One restart after another: settings may change while a server starts. */
function restart() {
  session.restarted = session.restarted.then(stop).then(start);
  return session.restarted;
}

function show(icon, tooltip) {
  session.item.text = `${icon} spd`;
  session.item.tooltip = tooltip;
}

/** Tell why nothing is offered, or how long the last completion took. */
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
    return `nothing was offered last: ${reason}`;
  }
  return lastPasses ? `last completion: ${lastPasses} passes, ${lastMilliseconds} ms` : "ready";
}

async function activate(context) {
  session.wiring = wiring(context.extension.packageJSON);
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
        setImmediate(restart); // after the client has passed the change on: stopped, it would show an error
      } else if (event.affectsConfiguration(SECTION) && session.client?.isRunning()) {
        session.client.sendNotification("spd-lsp/options", session.wiring.options());
      }
    }),
    vscode.workspace.onDidGrantWorkspaceTrust(() => session.client?.isRunning() || restart()),
  );
  await restart();
}

module.exports = { activate, deactivate: stop };
