// Chooses the program that is the server, by its full path and outside of the folders that are open: whoever filled
// those could have put one there. Knows nothing of VS Code: it gets a command, an environment and the folders.
"use strict";

const fs = require("node:fs");
const path = require("node:path");

const ENDINGS = process.platform === "win32" ? [".exe", ""] : [""];
const SEARCHED = ["PATH", "PYTHONPATH"];

/** A path as it is written and as it is once all links are followed. */
function namesOf(file) {
  try {
    return [path.resolve(file), fs.realpathSync.native(file)];
  } catch {
    return [path.resolve(file)];
  }
}

/** Whether a path lies in one of the folders, or is one. */
function liesIn(file, folders) {
  const isBelow = (name, root) => !path.relative(root, name).split(path.sep).includes("..") && !path.isAbsolute(path.relative(root, name));
  return folders.some((folder) => namesOf(folder).some((root) => namesOf(file).some((name) => isBelow(name, root))));
}

/** The entries of a search path that mean the same everywhere and that no open folder can fill. */
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

/** Where PATH has a program outside of the folders. */
function onPath(name, env, folders) {
  const value = Object.entries(env).find(([key]) => key.toUpperCase() === "PATH")?.[1] ?? "";
  const files = entriesOutside(value, folders).flatMap((entry) => ENDINGS.map((ending) => path.join(entry, name + ending)));
  return files.find((file) => isProgram(file) && !liesIn(file, folders));
}

/** The environment for the server: nothing in it leads into the folders, and no Python imports from where it works. */
function environment(env, folders) {
  const kept = Object.entries(env).map(([key, value]) =>
    SEARCHED.includes(key.toUpperCase()) ? [key, entriesOutside(value, folders).join(path.delimiter)] : [key, value],
  );
  return { ...Object.fromEntries(kept.filter(([key, value]) => value || !SEARCHED.includes(key.toUpperCase()))), PYTHONSAFEPATH: "1" };
}

/**
 * A command -> what to spawn, undefined if there is no such program. A program in an open folder is run only if it is
 * named by its full path and the folder is trusted.
 */
function serverOf([name, ...args], { env = process.env, folders, trusted }) {
  if (!path.isAbsolute(name) && /[\\/]/.test(name)) {
    throw new Error(`\`${name}\` would be looked for in the folder that is open. Give the program's full path in spd-lsp.serverCommand.`);
  }
  if (path.isAbsolute(name) && !trusted && liesIn(name, folders)) {
    throw new Error(`\`${name}\` lies in the folder that is open, which is not trusted. Trust the folder, or name another program in spd-lsp.serverCommand.`);
  }
  const command = path.isAbsolute(name) ? name : onPath(name, env, folders);
  return command && { command, args, options: { cwd: path.dirname(command), env: environment(env, folders) } };
}

module.exports = { liesIn, serverOf };
