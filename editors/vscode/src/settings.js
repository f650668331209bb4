// Reads VS Code's settings for the extension and the server. VS Code merges the user's settings with those of the open
// folder; in the manifest, settings without a scope are those that a folder may change.
"use strict";

const vscode = require("vscode");

const SECTION = "spd-lsp";
const EXTENSION_SETTINGS = ["serverCommand", "serverAddress", "trace.server"]; // all others are the server's

/** The value in the user's settings, whatever the open folder says. */
function userSetting(key) {
  return vscode.workspace.getConfiguration(SECTION).inspect(key)?.globalValue;
}

/** For the client library: the user's settings as options, and as configuration what folders may change. */
function clientSettings({ contributes }) {
  const { properties } = contributes.configuration;
  const keys = Object.keys(properties).map((key) => key.slice(SECTION.length + 1));
  const folderKeys = keys.filter((key) => !properties[`${SECTION}.${key}`].scope);
  const serverKeys = keys.filter((key) => !EXTENSION_SETTINGS.includes(key));
  return {
    options: () => Object.fromEntries(serverKeys.map((key) => [key, userSetting(key)]).filter(([, value]) => value !== undefined)),
    configuration: async (params, token, next) =>
      (await next(params, token)).map((section) => section && Object.fromEntries(folderKeys.map((key) => [key, section[key]]))),
  };
}

module.exports = { SECTION, clientSettings, userSetting };
