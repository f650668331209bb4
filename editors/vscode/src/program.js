// Finds the server's program by its full path, outside the open folders, which may contain a stranger's program.
// Knows nothing of VS Code. In: a command, an environment and the folders.
"use strict";

const fs = require("node:fs");
const path = require("node:path");

const EXTENSIONS = process.platform === "win32" ? [".exe", ""] : [""];
const SEARCH_PATHS = ["PATH", "PYTHONPATH"];

/** A path as written and with all links resolved. */
function namesOf(file) {
  try {
    return [path.resolve(file), fs.realpathSync.native(file)];
  } catch {
    return [path.resolve(file)];
  }
}

/** Whether a path is one of the folders, or inside one. */
function liesIn(file, folders) {
  const isBelow = (name, root) => !path.relative(root, name).split(path.sep).includes("..") && !path.isAbsolute(path.relative(root, name));
  return folders.some((folder) => namesOf(folder).some((root) => namesOf(file).some((name) => isBelow(name, root))));
}

/** The entries of a search path that are absolute and not inside an open folder. */
function entriesOutside(value, folders) {
  return value.split(path.delimiter).filter((entry) => path.isAbsolute(entry) && !liesIn(entry, folders));
}

function isProgram(file) {
  try {
    fs.accessSync(file, fs.constants.X_OK);
    return fs.statSync(file).isFile();
  } catch {
    return false;
  }
}

/** The full path of a program on the PATH, outside of the folders. */
function onPath(name, env, folders) {
  const value = Object.entries(env).find(([key]) => key.toUpperCase() === "PATH")?.[1] ?? "";
  const files = entriesOutside(value, folders).flatMap((entry) => EXTENSIONS.map((extension) => path.join(entry, name + extension)));
  return files.find((file) => isProgram(file) && !liesIn(file, folders));
}

/** The server's environment: no search path leads into the folders, and Python does not import from its working folder. */
function environment(env, folders) {
  const kept = Object.entries(env).map(([key, value]) =>
    SEARCH_PATHS.includes(key.toUpperCase()) ? [key, entriesOutside(value, folders).join(path.delimiter)] : [key, value],
  );
  return { ...Object.fromEntries(kept.filter(([key, value]) => value || !SEARCH_PATHS.includes(key.toUpperCase()))), PYTHONSAFEPATH: "1" };
}

/**
 * A command -> what to spawn, or undefined if there is no such program. A program inside an open folder is only run if
 * it is named by its full path and the folder is trusted.
 */
function serverOf([name, ...args], { env = process.env, folders, trusted }) {
  if (!path.isAbsolute(name) && /[\\/]/.test(name)) {
    throw new Error(`\`${name}\` is relative to the open folder. Give the program's full path in spd-lsp.serverCommand.`);
  }
  if (path.isAbsolute(name) && !trusted && liesIn(name, folders)) {
    throw new Error(`\`${name}\` is inside the open folder, which is not trusted. Trust the folder, or name another program in spd-lsp.serverCommand.`);
  }
  const command = path.isAbsolute(name) ? name : onPath(name, env, folders);
  return command && { command, args, options: { cwd: path.dirname(command), env: environment(env, folders) } };
}

module.exports = { liesIn, serverOf };
