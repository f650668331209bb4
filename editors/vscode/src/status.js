// The server's status record as an icon, a text, and why nothing is suggested. Knows nothing of VS Code.
"use strict";

const percent = (share) => `${Math.round(100 * share)} %`;

/** The status bar's { icon, text, lines }. `record`: the server's, undefined if it does not answer. */
function summary({ session, record, paused }) {
  if (session.kind === "starting") {
    return { icon: "loading~spin", text: "spd", lines: [session.message] };
  }
  if (session.kind === "failed") {
    return { icon: "error", text: "spd", lines: [session.message] };
  }
  if (!record) {
    return { icon: "warning", text: "spd", lines: ["the server does not answer; restart it"] };
  }
  return { ...state(record, paused), lines: details(record, paused) };
}

function state(record, paused) {
  if (record.kind === "error") {
    return { icon: "error", text: "spd: model failed" };
  }
  if (record.kind === "loading") {
    const share = /: (\d+)%$/.exec(record.message);
    return { icon: "loading~spin", text: share ? `spd: loading ${share[1]} %` : "spd: loading" };
  }
  if (paused) {
    return { icon: "debug-pause", text: "spd: paused" };
  }
  if (record.snoozing) {
    return { icon: "clock", text: `spd: snoozing ${Math.ceil(record.snoozing / 60)} min` };
  }
  if (record.automatic === false) {
    return { icon: "debug-pause", text: "spd: on request" };
  }
  if (record.indexing) {
    return { icon: "sync~spin", text: `spd: indexing ${percent(record.indexing.share)}` };
  }
  if (record.documentReason) {
    return { icon: "circle-slash", text: "spd: off" };
  }
  return { icon: "list-selection", text: record.indexed === false ? "spd: not indexed" : "spd" };
}

/** The status in lines of text. */
function details(record, paused) {
  const lines = [];
  const add = (isKnown, text) => isKnown && lines.push(text());
  add(paused, () => "paused in this window");
  add(record.kind !== "normal", () => record.message);
  add(record.indexing, () => `indexing ${record.indexing.folder}: ${percent(record.indexing.share)}`);
  add(!paused && record.documentReason, () => `off here: ${record.documentReason}`);
  const why = record.notIndexedReason || "its own names are unknown";
  add(record.indexed === false, () => `this folder is not indexed: ${why}`);
  add(record.problem, () => record.problem);
  add(record.model, () => `model: ${record.model}`);
  add(record.tables?.length, () => `n-grams: ${record.tables.join(", ")}`);
  const reused = `no pass (the one before: ${record.lastMilliseconds} ms)`; // the user typed along with it
  const cost = record.lastPasses ? `${record.lastPasses} passes, ${record.lastMilliseconds} ms` : reused;
  add(record.lastMilliseconds, () => `last completion: ${cost}`);
  return lines.length ? lines : ["ready"];
}

/** Why there was no suggestion, as a sentence. */
function whyNothing({ session, record, paused }) {
  if (session.kind !== "running") {
    return session.message;
  }
  if (!record) {
    return "the server does not answer. Restart it.";
  }
  if (record.kind !== "normal") {
    return record.message;
  }
  if (paused) {
    return "completions are paused in this window.";
  }
  const reason = record.documentReason || record.reason;
  return reason ? `no suggestion: ${reason}.` : "the last request had suggestions. Press Ctrl+Space to ask for some here.";
}

module.exports = { summary, whyNothing };
