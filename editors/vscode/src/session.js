// The running server: starts it, restarts it, and tries again for ever when it ends or cannot be reached. The client
// library registers completions and ghost text by itself.
"use strict";

const vscode = require("vscode");
const { CloseAction, ErrorAction, LanguageClient } = require("vscode-languageclient/node");
const { checkConnection, findInterpreters, findServer } = require("./server.js");
const { SECTION, userSetting } = require("./settings.js");

const DOCUMENTS = ["file", "untitled", "vscode-notebook-cell"].map((scheme) => ({ scheme }));
const FIRST_PAUSE = 1_000; // milliseconds until the next attempt, doubled each time
const LONGEST_PAUSE = 60_000;
const STABLE = 60_000; // after so long the next attempt comes at once again
// Tells the server that it may say when a longer ghost text is ready.
const ASKS_AGAIN = {
  fillClientCapabilities: (capabilities) => (capabilities.experimental = { ...capabilities.experimental, spdLonger: true }),
  initialize: () => {},
  getState: () => ({ kind: "static" }),
  clear: () => {},
};
const TYPING = 1_000; // milliseconds in which VS Code asks after an edit
const STARTING = { kind: "starting", message: "the server is starting" };

class Session {
  /** environment: the extension's own; fail(error): called with each reason that is new. */
  constructor(settings, environment, log, fail) {
    Object.assign(this, { settings, environment, log, fail });
    this.client = undefined;
    this.program = undefined; // that was found last
    this.state = STARTING;
    this.pause = FIRST_PAUSE;
    this.timer = undefined;
    this.queue = Promise.resolve();
    this.lastFailure = "";
    this.isGhostTextShown = false; // or was, before someone dismissed it
    this.isAskingAgain = false;
    this.edited = { text: "", at: 0 }; // the document and its version that was edited last, and when
    this.listed = ""; // the document and its version that a menu was asked for last
    this.isSilent = false; // in the menu, while others are asked what they list
    this.onRequest = () => {}; // for ghost text; called with document, position, and the menu's selected item if it is open
    this.onGhostText = () => {}; // called with document, position, and the drafts that may be shown there while no menu is open
  }

  get isRunning() {
    return this.client?.isRunning() ?? false;
  }

  /** Stop the server if there is one, and start one. Queued: settings may change while a server starts. */
  restart() {
    this.pause = FIRST_PAUSE;
    this.lastFailure = "";
    return this.enqueue();
  }

  enqueue() {
    clearTimeout(this.timer);
    this.queue = this.queue.then(async () => {
      this.state = STARTING; // already while the old server stops, which takes seconds if it hangs
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
        reject(lost); // of no effect once it has started
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

  /** Note that a document was edited; the log that VS Code shows is none. */
  noteEdit({ uri, version }) {
    if (DOCUMENTS.some(({ scheme }) => scheme === uri.scheme)) {
      this.edited = { text: `${uri} ${version}`, at: Date.now() };
    }
  }

  /** Whether VS Code asks for a menu by itself, in a person's words: once, behind a word, right after it was edited. */
  isTyped(document, position) {
    const text = `${document.uri} ${document.version}`;
    const isFirst = this.listed !== text;
    this.listed = text;
    const isAtWord = /\w$/.test(document.lineAt(position.line).text.slice(0, position.character));
    return isFirst && isAtWord && this.edited.text === text && Date.now() - this.edited.at < TYPING;
  }

  /** Ask for ghost text again, as if by typing: a whole block is ready where its first line is shown. */
  async askAgain(uri) {
    if (this.isGhostTextShown && vscode.window.activeTextEditor?.document.uri.toString() === uri.toString()) {
      this.isAskingAgain = true;
      await vscode.commands.executeCommand("editor.action.inlineSuggest.trigger").then(undefined, () => {});
      this.isAskingAgain = false;
    }
  }

  /** Note why there is no server, and start one after a pause. */
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

  /** Send the user's settings, or that completions are paused. */
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

  /** The server's status record, for the document that is being edited. */
  status() {
    const document = vscode.window.activeTextEditor?.document;
    const textDocument = document && { uri: this.client.code2ProtocolConverter.asUri(document.uri) };
    return this.client.sendRequest("spd-lsp/status", { textDocument });
  }

  /** What ghost text can be at a position of a document while no menu is open there. */
  async ghostTexts(document, position) {
    const { asTextDocumentIdentifier, asPosition } = this.client.code2ProtocolConverter;
    const place = { textDocument: asTextDocumentIdentifier(document), position: asPosition(position) };
    const found = await this.client.sendRequest("textDocument/inlineCompletion", { ...place, context: { triggerKind: 2 } });
    return (found?.items ?? []).map(({ insertText }) => insertText);
  }

  /** What VS Code and other extensions list at a position of a document. */
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

  /** Where the change just made in an editor is wanted, too: at most so many places. */
  async nextEdits({ document, selection }, limit) {
    const { asVersionedTextDocumentIdentifier, asPosition } = this.client.code2ProtocolConverter;
    const place = { textDocument: asVersionedTextDocumentIdentifier(document), position: asPosition(selection.active) };
    const context = { triggerKind: 2, limit };
    return (await this.client.sendRequest("textDocument/copilotInlineEdit", { ...place, context })).edits;
  }

  /** Offer nothing while the user types for five minutes, or again. */
  snooze() {
    return this.client.sendRequest("spd-lsp/snooze");
  }

  /** Run one of the server's commands. */
  execute(command, ...args) {
    return this.client.sendRequest("workspace/executeCommand", { command, arguments: args });
  }
}

module.exports = { Session };
