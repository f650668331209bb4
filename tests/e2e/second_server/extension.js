// Runs the Python language server of the environment variable SECOND_SERVER, and shows when it is ready.
"use strict";

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

async function activate(context) {
  const [command, ...args] = JSON.parse(process.env.SECOND_SERVER);
  const client = new LanguageClient("second", { command, args }, { documentSelector: [{ language: "python" }] });
  context.subscriptions.push(client);
  await client.start();
  const item = vscode.window.createStatusBarItem("ready", vscode.StatusBarAlignment.Right);
  item.text = "second server ready";
  item.show();
}

module.exports = { activate };
