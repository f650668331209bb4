// The status bar item: requests the server's status while the window is visible.
"use strict";

const vscode = require("vscode");
const { summary } = require("./status.js");

const INTERVAL = 1_000; // milliseconds between two requests
const PATIENCE = 5_000; // milliseconds until a server counts as hanging

class StatusItem {
  constructor(session) {
    this.session = session;
    this.record = undefined; // the server's last answer
    this.asking = undefined; // the current request
    this.onRecord = async () => {}; // called with each answer of the server
    this.item = vscode.window.createStatusBarItem("status", vscode.StatusBarAlignment.Right);
    this.item.name = "spd-lsp";
    this.item.command = "spd-lsp.menu";
    this.item.show();
    this.timer = setInterval(() => this.refresh(), INTERVAL);
    this.refresh();
  }

  /** The session's state, the server's record, and whether completions are paused. */
  get known() {
    const { session, record } = this;
    return { session: session.state, record, paused: session.settings.paused };
  }

  /** Request the status, unless a request is running or the window is hidden. */
  refresh() {
    const isSeen = vscode.window.state.focused || !this.record || this.session.state.kind !== "running";
    return isSeen && !this.asking ? this.ask() : undefined;
  }

  /** Request the status again and show it. */
  async ask() {
    await this.asking;
    const record = this.request().catch(() => undefined); // the server may be stopping
    this.asking = record.then((answer) => this.show(answer));
    await this.asking;
    this.asking = undefined;
  }

  /** The server's record, or undefined if there is none in time. */
  async request() {
    if (this.session.state.kind !== "running") {
      return undefined;
    }
    const late = new Promise((resolve) => setTimeout(resolve, PATIENCE));
    return Promise.race([this.session.status(), late]);
  }

  show(record) {
    this.record = record;
    record && this.onRecord(record).catch(() => {}); // the window may be closing
    const { icon, text, lines } = summary(this.known);
    const list = lines.map((line) => `- ${line.replace(/[\\`*_{}[\]<>()#!|]/g, "\\$&")}`).join("\n");
    this.item.text = `$(${icon}) ${text}`;
    this.item.tooltip = new vscode.MarkdownString(list);
  }

  dispose() {
    clearInterval(this.timer);
    this.item.dispose();
  }
}

module.exports = { StatusItem };
