// Finds the installed language server, and checks the connection to one that is already running.
"use strict";

const { execFile } = require("node:child_process");
const { promisify } = require("node:util");
const vscode = require("vscode");
const { serverOf } = require("./program.js");
const { userSetting } = require("./settings.js");

const INSTALL = "pip install -c constraints.txt .";
const PYTHON = process.platform === "win32" ? "python" : "python3";

const run = promisify(execFile);

/** How to run spd-lsp: the command from the settings, or else the first that works. */
async function findServer() {
  const chosen = userSetting("serverCommand") ?? [];
  const candidates = chosen.length ? [chosen] : [["spd-lsp"], [PYTHON, "-m", "spd_lsp"]];
  const folders = (vscode.workspace.workspaceFolders ?? []).map(({ uri }) => uri.fsPath);
  for (const command of candidates) {
    const server = serverOf(command, { folders, trusted: vscode.workspace.isTrusted });
    if (server && (await isSpdLsp(server))) {
      return server;
    }
  }
  const tried = candidates.map((command) => command.join(" ")).join("`, `");
  throw new Error(`Cannot find spd-lsp (tried \`${tried}\`). Run \`${INSTALL}\` in a clone of spd-lsp, or name the program in spd-lsp.serverCommand.`);
}

/** Whether a program is spd-lsp. */
async function isSpdLsp({ command, args, options }) {
  try {
    const { stdout } = await run(command, [...args, "--version"], { ...options, timeout: 30_000 });
    return /spd[-_]lsp/.test(stdout); // `python3 -m spd_lsp` prints its name with an underscore
  } catch {
    return false;
  }
}

/** Throw if the server cannot be reached: the client library would try five times and not say why. */
async function checkConnection({ command, args, options }, address) {
  try {
    await run(command, [...args, "connect", "--check", address], { ...options, timeout: 60_000 });
  } catch (error) {
    const reason = error.stderr?.trim().split("\n").pop().replace(/^Error: /, "") || error.message;
    throw new Error(`Cannot connect to ${address}: ${reason}. Or change spd-lsp.serverAddress.`);
  }
}

module.exports = { INSTALL, checkConnection, findServer };
