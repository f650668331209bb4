// Possible locations of the server, likeliest first. Knows nothing of VS Code.
"use strict";

const fs = require("node:fs");
const path = require("node:path");

const IS_WINDOWS = process.platform === "win32";
const PYTHON = IS_WINDOWS ? "python" : "python3";
const BIN = IS_WINDOWS ? "Scripts" : "bin";
const PROGRAM = IS_WINDOWS ? "spd-lsp.exe" : "spd-lsp";

/** Folders in which README, uv and pipx install the program, which a desktop's PATH may lack. */
function toolPrograms(env, home) {
  const data = env.XDG_DATA_HOME || path.join(home, ".local", "share");
  const bins = [env.UV_TOOL_BIN_DIR, env.PIPX_BIN_DIR, env.XDG_BIN_HOME, path.join(home, ".local", "bin")];
  const tools = [env.UV_TOOL_DIR, env.PIPX_HOME && path.join(env.PIPX_HOME, "venvs"), path.join(data, "uv", "tools")];
  tools.push(path.join(data, "pipx", "venvs"), path.join(home, ".local", "pipx", "venvs"));
  tools.push(...(env.APPDATA ? [path.join(env.APPDATA, "uv", "tools")] : []));
  const readme = path.join(home, ".venvs", "spd-lsp", BIN);
  const inTools = tools.filter(Boolean).map((folder) => path.join(folder, "spd-lsp", BIN));
  return [...bins.filter(Boolean), ...inTools, readme].map((folder) => path.join(folder, PROGRAM));
}

/** The program's path in a virtual environment or beside an interpreter. */
function programIn(environment) {
  return path.join(environment, BIN, PROGRAM);
}

/**
 * Commands that may start the server. A full path is only listed if there is a file.
 * interpreters: the Python interpreters chosen for the folders; own: the extension's environment.
 */
function candidates({ interpreters, folders, own, env, home }) {
  const files = [
    ...interpreters.map((interpreter) => path.join(path.dirname(interpreter), PROGRAM)),
    ...folders.map((folder) => programIn(path.join(folder, ".venv"))),
  ];
  const later = [...toolPrograms(env, home), programIn(own)];
  const existing = (paths) => paths.filter((file) => path.isAbsolute(file) && fs.existsSync(file)).map((file) => [file]);
  return [...existing(files), ["spd-lsp"], ...existing(later), [PYTHON, "-m", "spd_lsp"]];
}

module.exports = { BIN, candidates, programIn };
