// Finds the installed language server, or checks the connection to a running one.
"use strict";

const { execFile } = require("node:child_process");
const os = require("node:os");
const { promisify } = require("node:util");
const vscode = require("vscode");
const { candidates } = require("./locations.js");
const { liesIn, serverOf } = require("./program.js");
const { userSetting } = require("./settings.js");

const run = promisify(execFile);
const PYTHON_TIMEOUT = 10_000; // milliseconds for the Python extension to name an interpreter

class NotInstalled extends Error {}

function folderPaths() {
  return (vscode.workspace.workspaceFolders ?? []).map(({ uri }) => uri.fsPath);
}

/**
 * Return how to run spd-lsp: by the command in the settings, else by the first that works. `own`: the extension's
 * environment. `interpreters`: those of the Python extension.
 */
async function findServer(own, interpreters, log) {
  const folders = folderPaths();
  const trusted = vscode.workspace.isTrusted;
  const chosen = userSetting("serverCommand") ?? [];
  if (chosen.length) {
    const server = serverOf(chosen, { folders, trusted });
    if (server && (await isSpdLsp(server))) {
      return server;
    }
    throw new NotInstalled(`\`${chosen.join(" ")}\` is not spd-lsp. Correct spd-lsp.serverCommand, or clear it.`);
  }
  const places = { folders, own, env: process.env, home: os.homedir(), interpreters };
  for (const command of candidates(places)) {
    const isAllowed = trusted || !liesIn(command[0], folders);
    const server = isAllowed && serverOf(command, { folders, trusted });
    if (server && (await isSpdLsp(server))) {
      log.info(`server: ${[server.command, ...server.args].join(" ")}`);
      return server;
    }
  }
  throw new NotInstalled("The language server is not installed.");
}

/** The interpreters that the Python extension uses in the open folders, if it is installed. */
async function findInterpreters() {
  const extension = vscode.extensions.getExtension("ms-python.python");
  if (!extension) {
    return [];
  }
  const timeout = new Promise((resolve) => setTimeout(resolve, PYTHON_TIMEOUT));
  const environments = await Promise.race([extension.activate(), timeout]).then((api) => api?.environments, () => undefined);
  const found = [undefined, ...(vscode.workspace.workspaceFolders ?? [])].map(async (folder) => {
    const chosen = environments?.getActiveEnvironmentPath(folder?.uri);
    return chosen && (await environments.resolveEnvironment(chosen))?.executable.uri?.fsPath;
  });
  return [...new Set(await Promise.all(found).catch(() => []))].filter(Boolean).reverse();
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

/** Throw if the server cannot be reached, with the reason. */
async function checkConnection({ command, args, options }, address) {
  try {
    await run(command, [...args, "connect", "--check", address], { ...options, timeout: 60_000 });
  } catch (error) {
    const reason = error.stderr?.trim().split("\n").pop().replace(/^Error: /, "") || error.message;
    throw new Error(`Cannot connect to ${address}: ${reason}. Or change spd-lsp.serverAddress.`);
  }
}

module.exports = { NotInstalled, checkConnection, findInterpreters, findServer, folderPaths };
