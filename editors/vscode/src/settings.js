// What of VS Code's settings the extension and the server get. VS Code mixes a person's settings with those of the
// folder that is open; the manifest says which of them a folder may have a say in, by leaving out their scope.
"use strict";

const vscode = require("vscode");

const SECTION = "spd-lsp";
const EXTENSIONS = ["serverCommand", "serverAddress", "trace.server"]; // the rest is the server's

/** What a person has chosen, wherever they work: a folder that is open has no say in it. */
function own(key) {
  return vscode.workspace.getConfiguration(SECTION).inspect(key)?.globalValue;
}

/** The manifest's settings -> what the client library needs: all that a person chose, and what folders may set. */
function wiring({ contributes }) {
  const { properties } = contributes.configuration;
  const keys = Object.keys(properties).map((key) => key.slice(SECTION.length + 1));
  const anyFolder = keys.filter((key) => !properties[`${SECTION}.${key}`].scope);
  const servers = keys.filter((key) => !EXTENSIONS.includes(key));
  return {
    options: () => Object.fromEntries(servers.map((key) => [key, own(key)]).filter(([, value]) => value !== undefined)),
    configuration: async (params, token, next) =>
      (await next(params, token)).map((section) => section && Object.fromEntries(anyFolder.map((key) => [key, section[key]]))),
  };
}

module.exports = { SECTION, own, wiring };
