// Choosing a model: those on the server's machine and those that suit it, downloaded and tested before it is set. Until
// then, and after a failure, the old model stays. Uses the command `spd-lsp models`, not the protocol.
"use strict";

const { spawn } = require("node:child_process");
const vscode = require("vscode");
const { SECTION, userSetting } = require("./settings.js");

const SHARE = /: (\d+)%$/;
const PATIENCE = 2_000; // milliseconds before a cancelled command is killed

class Models {
  /** installAll: installs the packages of PyTorch models into the extension's environment; returns whether it could. */
  constructor(session, log, installAll) {
    Object.assign(this, { session, log, installAll });
  }

  async choose() {
    const address = userSetting("serverAddress");
    const program = this.session.program;
    if (address || !program) {
      const why = address ? `the server at ${address} has its own model` : this.session.state.message;
      vscode.window.showErrorMessage(`spd-lsp: ${why}`);
      return;
    }
    try {
      const options = { title: "spd-lsp: choose the model", matchOnDescription: true };
      const chosen = await vscode.window.showQuickPick(this.items(program), options);
      const model = await chosen?.pick();
      if (model) {
        await vscode.workspace.getConfiguration(SECTION).update("model", model, vscode.ConfigurationTarget.Global);
      }
    } catch (error) {
      this.log.error(error.message);
      const choice = await vscode.window.showErrorMessage(`spd-lsp: ${error.message}`, "Show the log");
      choice && this.log.show();
    }
  }

  /** The entries of the list; `pick` returns the setting's value once the model is downloaded and tested. */
  async items(program) {
    const models = JSON.parse(await this.run(program, ["--json"]));
    const group = (label) => ({ label, kind: vscode.QuickPickItemKind.Separator });
    const bundled = { label: "starter", description: "the bundled model", pick: () => "starter" };
    const file = { label: "$(folder-opened) A GGUF file ...", pick: () => this.pickFile(program) };
    const offers = models.filter(({ path }) => !path).map((model) => this.item(program, model));
    const here = models.filter(({ path }) => path).map((model) => this.item(program, model));
    return [group("on this machine"), bundled, ...here, file, ...(offers.length ? [group("to be downloaded")] : []), ...offers];
  }

  item(program, model) {
    const { name, bytes, fits, format, licence, install } = model;
    const facts = [
      `${(bytes / 1e9).toFixed(2)} GB`,
      licence ?? format,
      ...(fits === false ? ["more than the free memory"] : []),
      ...(install ? ["needs PyTorch"] : []),
    ];
    return { label: name, description: facts.join(" \u00b7 "), pick: () => this.get(program, name, install) };
  }

  async pickFile(program) {
    const [file] = (await vscode.window.showOpenDialog({ filters: { "GGUF files": ["gguf"] } })) ?? [];
    return file && this.get(program, file.fsPath);
  }

  /** Download and test a model with the server's program; return its name, nothing if cancelled or without packages. */
  async get(program, name, install) {
    if (install && !(await this.addPackages(name, install))) {
      return undefined;
    }
    const options = { location: vscode.ProgressLocation.Notification, title: `spd-lsp: ${name}`, cancellable: true };
    return vscode.window.withProgress(options, async (progress, token) => {
      let [before, model] = [0, undefined];
      const read = (line) => {
        const told = JSON.parse(line);
        const share = Number(SHARE.exec(told.status)?.[1] ?? before);
        progress.report({ message: told.status, increment: Math.max(0, share - before) });
        [before, model] = [Math.max(share, before), told.model];
      };
      await this.run(program, ["get", "--json", name], read, token);
      return model;
    });
  }

  /** Install the packages that a model needs; return whether they are installed. */
  async addPackages(name, command) {
    const [add, copy] = ["Install", "Copy the command"];
    const choice = await vscode.window.showWarningMessage(`spd-lsp: ${name} needs PyTorch, some 200 MB, on Linux with CUDA 2.8 GB.`, { modal: true, detail: command }, add, copy);
    if (choice === copy) {
      await vscode.env.clipboard.writeText(command);
    }
    if (choice !== add) {
      return false;
    }
    if (!(await this.installAll())) {
      throw new Error(`the server is not the extension's own. Run in a terminal: ${command}`);
    }
    return true;
  }

  /** Return the output of `spd-lsp models`, calling `read` with each line; reject with its error message. */
  run({ command, args, options }, more, read, token) {
    return new Promise((resolve, reject) => {
      const child = spawn(command, [...args, "models", ...more], { ...options, stdio: ["ignore", "pipe", "pipe"] });
      let patience;
      const cancel = token?.onCancellationRequested(() => {
        child.kill("SIGINT");
        patience = setTimeout(() => child.kill(), PATIENCE); // SIGINT is ignored if VS Code runs in a shell's background
      });
      let [printed, rest, errors] = ["", "", ""];
      child.stdout.setEncoding("utf8").on("data", (data) => {
        printed += data;
        const lines = (rest + data).split("\n");
        rest = lines.pop();
        lines.filter((line) => line.startsWith("{")).forEach((line) => read?.(line));
      });
      child.stderr.setEncoding("utf8").on("data", (data) => (errors += data));
      child.on("error", reject);
      child.on("close", (code) => {
        cancel?.dispose();
        clearTimeout(patience);
        const failure = errors.split(/^Error: /m)[1]?.trim() ?? (errors.trim() || `${command} ended with status ${code}`);
        code === 0 || token?.isCancellationRequested ? resolve(printed) : reject(new Error(failure));
      });
    });
  }
}

module.exports = { Models };
