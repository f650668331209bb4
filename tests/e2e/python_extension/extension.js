"use strict";

const vscode = require("vscode");

const path = process.env.SPD_LSP_TEST_INTERPRETER;
const environments = {
  getActiveEnvironmentPath: () => ({ id: path, path }),
  resolveEnvironment: async (chosen) => ({ executable: { uri: vscode.Uri.file(chosen.path) } }),
};

module.exports = { activate: () => ({ environments }) };
