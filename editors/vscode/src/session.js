// The running server: starts it, restarts it, and retries without giving up when it ends or cannot be reached. The
// client library itself registers completions and ghost text.
"use strict";

const vscode = require("vscode");
const { CloseAction, ErrorAction, LanguageClient } = require("vscode-languageclient/node");
const { checkConnection, findInterpreters, findServer } = require("./server.js");
const { SECTION, userSetting } = require("./settings.js");

const DOCUMENTS = ["file", "untitled", "vscode-notebook-cell"].map((scheme) => ({ scheme }));
const FIRST_PAUSE = 1_000; // milliseconds until the next attempt, doubled each time
const LONGEST_PAUSE = 60_000;
const STABLE = 60_000; // after this long, the next restart is immediate again
// Announces to the server that it may report when a longer ghost text is ready.
const ASKS_AGAIN = {
  fillClientCapabilities: (capabilities) => (capabilities.experimental = { ...capabilities.experimental, spdLonger: true }),
  initialize: () => {},
  getState: () => ({ kind: "static" }),
  clear: () => {},
};
const TYPING = 1_000; // milliseconds after an edit in which VS Code sends requests
const STARTING = { kind: "starting", message: "the server is starting" };

class Session {
  /** environment: the extension's own; fail(error): called with each new reason. */
  constructor(settings, environment, log, fail) {
    Object.assign(this, { settings, environment, log, fail });
    this.client = undefined;
    this.program = undefined; // found last
    this.state = STARTING;
    this.pause = FIRST_PAUSE;
    this.timer = undefined;
    this.queue = Promise.resolve();
    this.lastFailure = "";
    this.isGhostTextShown = false; // or was shown before it was dismissed
    this.isAskingAgain = false;
    this.edited = { text: "", at: 0 }; // the last edited document with its version, and when
    this.listed = ""; // the document and version of the last menu
    this.isSilent = false; // offers nothing in the menu, while other extensions are asked
    this.onRequest = () => {}; // on requests of ghost text: document, position, and the selected item of an open menu
    this.onGhostText = () => {}; // on ghost text without a menu: document, position, and its drafts
  }

  get isRunning() {
    return this.client?.isRunning() ?? false;
  }

  /** Restart the server. Queued: settings may change while a server starts. */
  restart() {
    this.pause = FIRST_PAUSE;
    this.lastFailure = "";
    return this.enqueue();
  }

  enqueue() {
    clearTimeout(this.timer);
    this.queue = this.queue.then(async () => {
      this.state = STARTING; // set first: stopping takes seconds if the old server hangs
      await this.stop();
      await this.start();
    });
    return this.queue;
  }

  async start() {
    try {
      const program = await findServer(this.environment.location, await findInterpreters(), this.log);
      this.program = program;
      const address = userSetting("serverAddress");
      if (address) {
        await checkConnection(program, address);
      }
      await this.connect(program, address ? ["connect", address] : ["serve"]);
      this.sendCursor(vscode.window.activeTextEditor);
      this.state = { kind: "running", message: "the server is running" };
      vscode.commands.executeCommand("setContext", "spd-lsp.running", true); // completes a step of the walkthrough
    } catch (error) {
      this.client = undefined;
      this.tryAgain(error);
      if (error.message !== this.lastFailure) {
        this.lastFailure = error.message;
        this.fail(error);
      }
    }
  }

  /** Start a client and wait until the server has answered, or ended. */
  connect(program, command) {
    return new Promise((resolve, reject) => {
      const lost = new Error(command[0] === "connect" ? `The connection to ${command[1]} was lost.` : "The server ended unexpectedly.");
      const startedAt = Date.now();
      const closed = (client) => {
        reject(lost); // no effect after the start
        if (client === this.client && this.state.kind === "running") {
          this.client = undefined;
          Object.assign(this, Date.now() - startedAt > STABLE && { pause: FIRST_PAUSE, lastFailure: "" });
          this.tryAgain(lost);
        }
      };
      this.client = this.clientOf({ ...program, args: [...program.args, ...command] }, closed);
      this.client.start().then(resolve, reject);
    });
  }

  clientOf(server, closed) {
    const client = new LanguageClient(SECTION, SECTION, server, {
      documentSelector: DOCUMENTS,
      outputChannel: this.log,
      initializationOptions: () => this.settings.options(),
      initializationFailedHandler: () => false,
      middleware: {
        workspace: { configuration: (...request) => this.settings.configuration(...request) },
        provideInlineCompletionItems: async (document, position, context, token, next) => {
          const selected = context.selectedCompletionInfo;
          this.onRequest(document, position, selected);
          const triggerKind = this.isAskingAgain ? vscode.InlineCompletionTriggerKind.Automatic : context.triggerKind;
          const found = await next(document, position, { ...context, triggerKind }, token);
          if (!token.isCancellationRequested) {
            const items = found?.items ?? found ?? [];
            this.isGhostTextShown = items.length > 0;
            const drafts = items.map(({ insertText, command }) => ({ text: insertText, details: command?.title }));
            selected || this.onGhostText(document, position, drafts);
          }
          return found;
        },
        provideCompletionItem: (document, position, context, token, next) => {
          const isTyped = this.isTyped(document, position) && context.triggerKind === vscode.CompletionTriggerKind.Invoke;
          const triggerKind = isTyped ? vscode.CompletionTriggerKind.TriggerForIncompleteCompletions : context.triggerKind;
          return this.isSilent ? [] : next(document, position, { ...context, triggerKind }, token);
        },
      },
      errorHandler: {
        error: () => ({ action: ErrorAction.Continue, handled: true }),
        closed: () => {
          closed(client);
          return { action: CloseAction.DoNotRestart, handled: true };
        },
      },
    });
    client.registerFeature(ASKS_AGAIN);
    client.onNotification("spd-lsp/longer", ({ uri }) => this.askAgain(client.protocol2CodeConverter.asUri(uri)));
    return client;
  }

  /** Record that a document was edited; VS Code's own log view is ignored. */
  noteEdit({ uri, version }) {
    if (DOCUMENTS.some(({ scheme }) => scheme === uri.scheme)) {
      this.edited = { text: `${uri} ${version}`, at: Date.now() };
    }
  }

  /** Whether VS Code requests the menu by itself: once, after a word, right after an edit. */
  isTyped(document, position) {
    const text = `${document.uri} ${document.version}`;
    const isFirst = this.listed !== text;
    this.listed = text;
    const isAtWord = /\w$/.test(document.lineAt(position.line).text.slice(0, position.character));
    return isFirst && isAtWord && this.edited.text === text && Date.now() - this.edited.at < TYPING;
  }

  /** Request ghost text as typing would: a whole block is ready whose first line is shown. */
  async askAgain(uri) {
    if (this.isGhostTextShown && vscode.window.activeTextEditor?.document.uri.toString() === uri.toString()) {
      this.isAskingAgain = true;
      await vscode.commands.executeCommand("editor.action.inlineSuggest.trigger").then(undefined, () => {});
      this.isAskingAgain = false;
    }
  }

  /** Report why there is no server, and start one after a pause. */
  tryAgain(error) {
    const seconds = Math.round(this.pause / 1000);
    this.state = { kind: "failed", message: `${error.message} Trying again in ${seconds} s.`, error };
    this.log.error(error.message);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.enqueue(), this.pause);
    this.pause = Math.min(2 * this.pause, LONGEST_PAUSE);
  }

  async stop() {
    clearTimeout(this.timer);
    const client = this.client;
    this.client = undefined;
    if (client?.isRunning()) {
      await client.stop().catch((error) => this.log.warn(error.message)); // a server that hangs is killed
    }
  }

  /** Send the user's settings, or the pause. */
  sendSettings() {
    if (this.isRunning) {
      this.client.sendNotification("spd-lsp/options", this.settings.options());
    }
  }

  setPaused(paused) {
    this.settings.paused = paused;
    if (this.isRunning) {
      this.client.sendNotification("workspace/didChangeConfiguration", { settings: null }); // the server asks for it
    }
  }

  /** Tell the server where the cursor is: once it rests, the model reads the code around it. */
  sendCursor(editor) {
    if (this.isRunning && editor && vscode.languages.match(DOCUMENTS, editor.document)) {
      const { asTextDocumentIdentifier, asPosition } = this.client.code2ProtocolConverter;
      const textDocument = asTextDocumentIdentifier(editor.document);
      this.client.sendNotification("spd-lsp/cursor", { textDocument, position: asPosition(editor.selection.active) });
    }
  }

  /** The server's status record for the active document. */
  status() {
    const document = vscode.window.activeTextEditor?.document;
    const textDocument = document && { uri: this.client.code2ProtocolConverter.asUri(document.uri) };
    return this.client.sendRequest("spd-lsp/status", { textDocument });
  }

  /** The ghost text at a position of a document without a menu. */
  async ghostTexts(document, position) {
    const { asTextDocumentIdentifier, asPosition } = this.client.code2ProtocolConverter;
    const place = { textDocument: asTextDocumentIdentifier(document), position: asPosition(position) };
    const found = await this.client.sendRequest("textDocument/inlineCompletion", { ...place, context: { triggerKind: 2 } });
    return (found?.items ?? []).map(({ insertText }) => insertText);
  }

  /** The items of VS Code and other extensions at a position. */
  async othersItems({ uri }, position) {
    this.isSilent = true;
    try {
      return (await vscode.commands.executeCommand("vscode.executeCompletionItemProvider", uri, position)).items;
    } finally {
      this.isSilent = false;
    }
  }

  /** All drafts at the cursor of an editor. */
  drafts({ document, selection }) {
    const { asTextDocumentIdentifier, asPosition } = this.client.code2ProtocolConverter;
    const place = { textDocument: asTextDocumentIdentifier(document), position: asPosition(selection.active) };
    return this.client.sendRequest("spd-lsp/drafts", place);
  }

  /** At most this many places that probably need the change just made. */
  async nextEdits({ document, selection }, limit) {
    const { asVersionedTextDocumentIdentifier, asPosition } = this.client.code2ProtocolConverter;
    const place = { textDocument: asVersionedTextDocumentIdentifier(document), position: asPosition(selection.active) };
    const context = { triggerKind: 2, limit };
    return (await this.client.sendRequest("textDocument/copilotInlineEdit", { ...place, context })).edits;
  }

  /** Turn completions while typing off for five minutes, or on again. */
  snooze() {
    return this.client.sendRequest("spd-lsp/snooze");
  }

  /** Run one of the server's commands. */
  execute(command, ...args) {
    return this.client.sendRequest("workspace/executeCommand", { command, arguments: args });
  }
}

module.exports = { Session };
