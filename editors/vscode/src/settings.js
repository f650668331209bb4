// Reads VS Code's settings for the extension and the server. VS Code merges the user's settings with those of the open
// folder; in the manifest, settings without a scope are those that a folder may change.
"use strict";

const vscode = require("vscode");

const SECTION = "spd-lsp";
const EXTENSION_SETTINGS = ["serverCommand", "serverAddress", "trace.server"]; // the server knows all others

/** The value in the user's settings, without those of the open folder. */
function userSetting(key) {
  return vscode.workspace.getConfiguration(SECTION).inspect(key)?.globalValue;
}

/** Show settings; in a remote window the machine's, which hold machine settings such as the model. */
function openSettings(query) {
  const isRemote = vscode.env.remoteName !== undefined;
  return vscode.commands.executeCommand(`workbench.action.open${isRemote ? "Remote" : ""}Settings`, isRemote ? { query } : query);
}

/** The server's settings: the user's as options, those that folders may change as configuration. */
class ServerSettings {
  constructor({ contributes }) {
    const properties = Object.assign({}, ...contributes.configuration.map((section) => section.properties));
    const keys = Object.keys(properties).map((key) => key.slice(SECTION.length + 1));
    this.folderKeys = keys.filter((key) => !properties[`${SECTION}.${key}`].scope);
    this.serverKeys = keys.filter((key) => !EXTENSION_SETTINGS.includes(key));
    this.paused = false; // until the window is closed
  }

  options() {
    return Object.fromEntries(this.serverKeys.map((key) => [key, userSetting(key)]).filter(([, value]) => value !== undefined));
  }

  /** Middleware of the client library: answers the server's request for our section. */
  async configuration(params, token, next) {
    return (await next(params, token)).map((section) => section && this.ofFolder(section));
  }

  /** All values that were set; defaults would override the server's configuration file. */
  ofFolder(section) {
    const set = (key) => {
      const { globalValue, workspaceValue, workspaceFolderValue } = vscode.workspace.getConfiguration(SECTION).inspect(key) ?? {};
      return [globalValue, workspaceValue, workspaceFolderValue].some((value) => value !== undefined);
    };
    const settings = Object.fromEntries(this.folderKeys.filter(set).map((key) => [key, section[key]]));
    return this.paused ? { ...settings, enabled: false } : settings;
  }
}

module.exports = { SECTION, ServerSettings, openSettings, userSetting };
