// Packs the extension with all that it needs: the bundle, the server's source archive for the extension's own
// environment, and the licences of the libraries in the bundle. The same sources give the same bytes, whenever and
// wherever they are packed.
//
//   node package.cjs [--out FILE.vsix] [--server FILE.tar.gz]      PYTHON: the Python that builds the archive
"use strict";

process.env.SOURCE_DATE_EPOCH ??= "946684800"; // 2000-01-01, instead of the files' times
process.env.TZ = "UTC"; // archives hold local times

const { execFileSync, spawnSync } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const zlib = require("node:zlib");

const ROOT = path.join(__dirname, "..", "..");
const PYTHON = process.env.PYTHON || (process.platform === "win32" ? "python" : "python3");

const option = (name) => (process.argv.includes(name) ? path.resolve(process.argv[process.argv.indexOf(name) + 1]) : undefined);

/** Build the server's source archive; its path. hatchling is installed in a temporary folder if it is missing. */
function buildServer(scratch) {
  const build = (environment) =>
    spawnSync(PYTHON, ["-m", "hatchling", "build", "-t", "sdist", "-d", scratch], { cwd: ROOT, env: { ...process.env, ...environment }, encoding: "utf8" });
  let done = build({});
  if (/No module named/.test(done.stderr)) {
    const tools = path.join(scratch, "tools");
    execFileSync(PYTHON, ["-m", "pip", "install", "--quiet", "--target", tools, "--constraint", path.join(ROOT, "constraints.txt"), "hatchling"], { stdio: "inherit" });
    done = build({ PYTHONPATH: tools });
  }
  if (done.status !== 0) {
    throw new Error(`cannot build the server's source archive: ${done.error ?? done.stderr}`);
  }
  return path.join(scratch, fs.readdirSync(scratch).find((name) => name.endsWith(".tar.gz")));
}

/** The text of a file at the top of a source archive. */
function readArchived(archive, name) {
  const data = zlib.gunzipSync(fs.readFileSync(archive));
  for (let at = 0; at < data.length; ) {
    const field = (start, length) => data.toString("utf8", at + start, at + start + length).replace(/\0.*$/s, "");
    const size = parseInt(field(124, 12), 8) || 0;
    if (field(0, 100).split("/").slice(1).join("/") === name) {
      return data.toString("utf8", at + 512, at + 512 + size);
    }
    at += 512 + 512 * Math.ceil(size / 512);
  }
  throw new Error(`${archive} has no ${name}`);
}

/** The licence of each library in the bundle. */
function thirdPartyNotices() {
  const { inputs } = JSON.parse(fs.readFileSync(path.join(__dirname, "dist", "meta.json")));
  const folders = Object.keys(inputs).map((file) => file.match(/^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//)?.[1]);
  const notice = (folder) => {
    const { name, version } = JSON.parse(fs.readFileSync(path.join(__dirname, folder, "package.json")));
    const file = fs.readdirSync(path.join(__dirname, folder)).find((one) => /^licen[cs]e/i.test(one));
    if (!file) {
      throw new Error(`${name} has no licence file`);
    }
    return `${name} ${version}\n\n${fs.readFileSync(path.join(__dirname, folder, file), "utf8").trim()}\n`;
  };
  return `This extension contains the following libraries.\n\n${[...new Set(folders)].filter(Boolean).sort().map(notice).join(`\n${"-".repeat(80)}\n\n`)}`;
}

/** The repository's address, if known: from CI, or the remote `origin`. */
function repository() {
  const { GITHUB_SERVER_URL: server, GITHUB_REPOSITORY: name } = process.env;
  const origin = spawnSync("git", ["remote", "get-url", "origin"], { cwd: __dirname, encoding: "utf8" }).stdout?.trim();
  const url = server && name ? `${server}/${name}` : origin;
  return /^https:/.test(url) ? { repository: { type: "git", url }, bugs: { url: `${url.replace(/\.git$/, "")}/issues` } } : {};
}

/** The README with its picture embedded: VS Code does not resolve relative links. */
function readme() {
  const inline = (all, name) => all.replace(name, `data:image/png;base64,${fs.readFileSync(path.join(__dirname, name), "base64")}`);
  return fs.readFileSync(path.join(__dirname, "README.md"), "utf8").replace(/!\[[^\]]*\]\(([\w.-]+\.png)\)/g, inline);
}

/** Put all files of the package into a folder. */
function stage(folder, archive) {
  const manifest = JSON.parse(fs.readFileSync(path.join(__dirname, "package.json")));
  for (const name of ["scripts", "devDependencies"]) {
    delete manifest[name];
  }
  const texts = {
    ".vscodeignore": "", // pack everything here; vsce warns without this file
    "package.json": JSON.stringify({ ...manifest, ...repository() }, undefined, 2),
    "README.md": readme(),
    "ThirdPartyNotices.txt": thirdPartyNotices(),
    "server/constraints.txt": readArchived(archive, "constraints.txt"),
  };
  const copies = [...["LICENSE", "icon.png", "drafts.png", "index.png", "menu.png", "words.png", "typing.webp", "dist/extension.js"].map((name) => [name, path.join(__dirname, name)])];
  copies.push([`server/${path.basename(archive)}`, archive]);
  for (const name of ["dist", "server"]) {
    fs.mkdirSync(path.join(folder, name), { recursive: true });
  }
  Object.entries(texts).forEach(([name, text]) => fs.writeFileSync(path.join(folder, name), text));
  copies.forEach(([name, source]) => fs.copyFileSync(source, path.join(folder, name)));
}

async function main() {
  const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "spd-lsp-"));
  try {
    const folder = path.join(scratch, "extension");
    stage(folder, option("--server") ?? buildServer(scratch));
    const packagePath = option("--out") ?? path.join(__dirname, "spd-lsp.vsix");
    await require("@vscode/vsce").createVSIX({ cwd: folder, packagePath, dependencies: false, allowMissingRepository: true, rewriteRelativeLinks: false });
  } finally {
    fs.rmSync(scratch, { recursive: true, force: true });
  }
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
