// Packs the extension: the same sources give the same bytes, whenever and wherever they are packed.
process.env.SOURCE_DATE_EPOCH ??= "946684800"; // 2000-01-01, instead of the files' times
process.env.TZ = "UTC"; // archives hold local times

require("@vscode/vsce").createVSIX({
  packagePath: process.argv[2] === "--out" ? process.argv[3] : "spd-lsp.vsix",
  dependencies: false,
  allowMissingRepository: true,
});
