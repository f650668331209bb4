// Finds the language server, starts and restarts it, and shows its state. Completions are the server's own matter:
// the client library registers the menu and the ghost text by itself.
"use strict";

const { execFile } = require("node:child_process");
const { promisify } = require("node:util");
const vscode = require("vscode");
const { LanguageClient, State } = require("vscode-languageclient/node");

const INSTALL = "pip install -c constraints.txt .";
const PYTHON = process.platform === "win32" ? "python" : "python3";
const STATES = new Map([
  [State.Starting, ["$(loading~spin)", "spd-lsp is starting"]],
  [State.Running, ["$(list-selection)", "spd-lsp: click for its status"]],
  [State.Stopped, ["$(warning)", "spd-lsp has stopped"]],
]);
const DOCUMENTS = ["file", "untitled", "vscode-notebook-cell"].map((scheme) => ({ scheme }));

const run = promisify(execFile);

/** What lives as long as the extension: the client of the running server, the item in the status bar, the last restart. */
const session = { client: undefined, item: undefined, log: undefined, restarted: Promise.resolve() };

/** The command that runs spd-lsp: the one from the settings, else the first that answers. */
async function findServer() {
  const chosen = vscode.workspace.getConfiguration("spd-lsp").get("serverCommand", []);
  const candidates = chosen.length ? [chosen] : [["spd-lsp"], [PYTHON, "-m", "spd_lsp"]];
  for (const command of candidates) {
    if (await answers(command)) {
      return command;
    }
  }
  const tried = candidates.map((command) => command.join(" ")).join("`, `");
  throw new Error(`No server found: tried \`${tried}\`. In a clone of spd-lsp run \`${INSTALL}\`, or name the program in spd-lsp.serverCommand.`);
}

/** Whether a command is spd-lsp. */
async function answers([program, ...rest]) {
  try {
    const { stdout } = await run(program, [...rest, "--version"], { timeout: 30_000 });
    return /spd[-_]lsp/.test(stdout); // `python3 -m spd_lsp` gives its name with an underscore
  } catch {
    return false;
  }
}

/** Fails unless the server there can be joined: the client library would try five times and tell nothing of it. */
async function reach([program, ...rest], address) {
  try {
    await run(program, [...rest, "connect", "--check", address], { timeout: 60_000 });
  } catch (error) {
    const reason = error.stderr?.trim().split("\n").pop().replace(/^Error: /, "") || error.message;
    throw new Error(`No server could be joined at ${address}: ${reason}. Or change spd-lsp.serverAddress.`);
  }
}

async function start() {
  show(...STATES.get(State.Starting));
  try {
    const [command, ...rest] = await findServer();
    const address = vscode.workspace.getConfiguration("spd-lsp").get("serverAddress");
    if (address) {
      await reach([command, ...rest], address);
    }
    const server = { command, args: [...rest, ...(address ? ["connect", address] : ["serve"])] };
    session.client = new LanguageClient("spd-lsp", "spd-lsp", server, { documentSelector: DOCUMENTS, outputChannel: session.log });
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
      }
    }),
  );
  await restart();
}

module.exports = { activate, deactivate: stop };
