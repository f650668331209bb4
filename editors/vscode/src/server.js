// Finds the language server among what is installed, and whether one that runs elsewhere can be joined.
"use strict";

const { execFile } = require("node:child_process");
const { promisify } = require("node:util");
const vscode = require("vscode");
const { serverOf } = require("./program.js");
const { own } = require("./settings.js");

const INSTALL = "pip install -c constraints.txt .";
const PYTHON = process.platform === "win32" ? "python" : "python3";

const run = promisify(execFile);

/** How to run spd-lsp: the command from the settings, else the first that answers. */
async function findServer() {
  const chosen = own("serverCommand") ?? [];
  const candidates = chosen.length ? [chosen] : [["spd-lsp"], [PYTHON, "-m", "spd_lsp"]];
  const folders = (vscode.workspace.workspaceFolders ?? []).map(({ uri }) => uri.fsPath);
  for (const command of candidates) {
    const server = serverOf(command, { folders, trusted: vscode.workspace.isTrusted });
    if (server && (await answers(server))) {
      return server;
    }
  }
  const tried = candidates.map((command) => command.join(" ")).join("`, `");
  throw new Error(`No server found: tried \`${tried}\`. In a clone of spd-lsp run \`${INSTALL}\`, or name the program in spd-lsp.serverCommand.`);
}

/** Whether a program is spd-lsp. */
async function answers({ command, args, options }) {
  try {
    const { stdout } = await run(command, [...args, "--version"], { ...options, timeout: 30_000 });
    return /spd[-_]lsp/.test(stdout); // `python3 -m spd_lsp` gives its name with an underscore
  } catch {
    return false;
  }
}

/** Fails unless the server there can be joined: the client library would try five times and tell nothing of it. */
async function reach({ command, args, options }, address) {
  try {
    await run(command, [...args, "connect", "--check", address], { ...options, timeout: 60_000 });
  } catch (error) {
    const reason = error.stderr?.trim().split("\n").pop().replace(/^Error: /, "") || error.message;
    throw new Error(`No server could be joined at ${address}: ${reason}. Or change spd-lsp.serverAddress.`);
  }
}

module.exports = { INSTALL, findServer, reach };
