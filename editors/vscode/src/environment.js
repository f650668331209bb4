// The extension's own Python environment, in its storage folder; installs the server packed with the extension.
"use strict";

const { spawn } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");
const vscode = require("vscode");
const { BIN, programIn } = require("./locations.js");
const { serverOf } = require("./program.js");

const PYTHONS = ["python3.14", "python3.13", "python3.12", "python3.11", "python3", "python"];
const IS_NEW_ENOUGH = "import sys; sys.exit(sys.version_info < (3, 11))";
const FINISHED = "finished"; // a file that marks a complete environment
const PAUSE = 500; // milliseconds between checks of another window's installation

function isFinished(folder) {
  return fs.existsSync(path.join(folder, FINISHED));
}

/** Create a file with this process's id; return false if another running process holds it. */
function takeLock(file) {
  try {
    fs.writeFileSync(file, String(process.pid), { flag: "wx" });
    return true;
  } catch (error) {
    if (error.code !== "EEXIST") {
      throw error;
    }
  }
  try {
    process.kill(Number(fs.readFileSync(file, "utf8")), 0); // empty: it is being written
  } catch (error) {
    if (error.code !== "EPERM" && error.code !== "ENOENT") {
      fs.rmSync(file, { force: true }); // that process ended early
    }
  }
  return false;
}

class OwnEnvironment {
  /** folders(): the paths of the open folders. */
  constructor(context, folders, log) {
    this.storage = context.globalStorageUri.fsPath;
    this.packed = path.join(context.extensionPath, "server");
    this.folder = path.join(this.storage, `server-${context.extension.packageJSON.version}`);
    this.folders = folders;
    this.log = log;
  }

  /** The installed server, possibly of another version of the extension until it is updated, or its future path. */
  get location() {
    return [this.folder, ...this.others()].find(isFinished) ?? path.join(this.folder, "unfinished");
  }

  /** Whether only another version of the server is installed. */
  get isOutdated() {
    return this.others().some(isFinished) && !isFinished(this.folder);
  }

  /** Whether a program is the server of this version. */
  holds(command) {
    return isFinished(this.folder) && command === programIn(this.folder);
  }

  /** Whether a program is the server of another version. */
  isOutdatedProgram(command) {
    return this.isOutdated && this.others().some((folder) => command === programIn(folder));
  }

  /** The environments of other versions of the extension. */
  others() {
    const names = fs.existsSync(this.storage) ? fs.readdirSync(this.storage) : [];
    const folders = names.filter((name) => name.startsWith("server-")).map((name) => path.join(this.storage, name));
    return folders.filter((folder) => folder !== this.folder);
  }

  /** Delete the environments of other versions, once no window runs their server any more. */
  removeOthers() {
    for (const folder of isFinished(this.folder) ? this.others() : []) {
      fs.rm(folder, { recursive: true, force: true }, (error) => error && this.log.warn(error.message));
    }
  }

  /** Install the server with visible progress; can be cancelled. `all`: with the packages that PyTorch models need. */
  async install({ all }) {
    const options = { location: vscode.ProgressLocation.Notification, title: "Installing spd-lsp", cancellable: true };
    await vscode.window.withProgress(options, async (progress, token) => {
      const show = (message) => progress.report({ message });
      fs.mkdirSync(this.storage, { recursive: true });
      show("waiting for another window");
      await this.alone(token, () => this.installAlone(all, show, token));
    });
  }

  /** Run a task, or if another window runs it already, wait until that window has succeeded or given up. */
  async alone(token, task) {
    const lock = path.join(this.storage, "installing");
    for (let waited = false; ; waited = true) {
      if (waited && isFinished(this.folder)) {
        return;
      }
      if (token?.isCancellationRequested) {
        throw new Error("spd-lsp was not installed: it was cancelled");
      }
      if (takeLock(lock)) {
        await task().finally(() => fs.rmSync(lock, { force: true }));
        return;
      }
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
  }

  async installAlone(all, show, token) {
    fs.rmSync(this.folder, { recursive: true, force: true });
    try {
      show("creating an environment");
      await this.create(token);
      const pip = [path.join(this.folder, BIN, "python"), "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"];
      const constraints = ["--constraint", path.join(this.packed, "constraints.txt")];
      await this.run([...pip, "--progress-bar", "off", ...constraints, this.archive() + (all ? "[models]" : "")], show, token);
      fs.writeFileSync(path.join(this.folder, FINISHED), "");
    } catch (error) {
      fs.rmSync(this.folder, { recursive: true, force: true });
      throw error;
    }
  }

  archive() {
    return path.join(this.packed, fs.readdirSync(this.packed).find((name) => name.endsWith(".tar.gz")));
  }

  /** Create the environment with the first suitable Python, or with uv, which brings its own. */
  async create(token) {
    const tried = [];
    for (const python of PYTHONS) {
      if (this.find([python]) && (await this.succeeds([python, "-I", "-c", IS_NEW_ENOUGH]))) {
        const venv = this.run([python, "-I", "-m", "venv", this.folder], () => {}, token);
        const failure = await venv.catch((error) => error);
        if (!failure) {
          return;
        }
        tried.push(failure.message);
        fs.rmSync(this.folder, { recursive: true, force: true });
      }
    }
    if (!this.find(["uv"])) {
      throw new Error(tried[0] ?? "Cannot find Python 3.11 or newer. Install it from python.org, or with your system's packages.");
    }
    await this.run(["uv", "venv", "--seed", "--python", ">=3.11", this.folder], () => {}, token);
  }

  find(command) {
    return serverOf(command, { folders: this.folders(), trusted: false });
  }

  async succeeds(command) {
    return this.run(command, () => {}).then(() => true, () => false);
  }

  /** Run a program with a working folder outside the open folders; log and show each line of its output. */
  run(command, show, token) {
    const found = this.find(command);
    return new Promise((resolve, reject) => {
      let last = "";
      const child = spawn(found.command, found.args, { ...found.options, cwd: this.storage, stdio: ["ignore", "pipe", "pipe"] });
      const cancel = token?.onCancellationRequested(() => child.kill());
      const read = (data) => {
        for (const line of String(data).split(/\r?\n/).filter((text) => text.trim())) {
          this.log.info(line);
          last = /error/i.test(line) || !/error/i.test(last) ? line : last;
          show(line.trim().slice(0, 80));
        }
      };
      child.stdout.on("data", read);
      child.stderr.on("data", read);
      child.on("error", reject);
      child.on("close", (code) => {
        cancel?.dispose();
        const failure = token?.isCancellationRequested ? "it was cancelled" : last || `${command[0]} ended with status ${code}`;
        code === 0 ? resolve() : reject(new Error(`spd-lsp was not installed: ${failure.trim()}`));
      });
    });
  }
}

module.exports = { OwnEnvironment };
