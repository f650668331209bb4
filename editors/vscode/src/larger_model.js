// Suggests a larger model, once, if this machine is fast enough for it. Reads status records.
"use strict";

const vscode = require("vscode");

const TOLD = "toldOfLargerModels"; // on this machine
const ENOUGH = 20; // completions before the mean time is reliable
const RATIO = 2.4; // time of a model of 500 million parameters to the bundled one's (HumanEval-Infilling, llama.cpp)
const PATIENCE = 500; // milliseconds
const CHOOSE = "Choose the model";

class LargerModel {
  /** memory: state kept on this machine. choose: opens the list of models. */
  constructor(memory, choose) {
    Object.assign(this, { memory, choose, times: [] });
  }

  /** Record a status; suggest a larger model once enough completions were fast. */
  async note({ model, lastPasses, lastMilliseconds }) {
    if (model !== "starter" || !lastPasses || lastMilliseconds === this.times.at(-1) || this.memory.get(TOLD)) {
      return;
    }
    this.times.push(lastMilliseconds);
    const usual = [...this.times].sort((one, other) => one - other)[this.times.length >> 1];
    if (this.times.length === ENOUGH && RATIO * usual <= PATIENCE) {
      await this.memory.update(TOLD, true);
      const seconds = ((RATIO * usual) / 1000).toFixed(1);
      const message = `spd-lsp: a model of 0.5 GB would complete more lines than the bundled one, in about ${seconds} s each.`;
      const choice = await vscode.window.showInformationMessage(message, CHOOSE);
      choice && this.choose();
    }
  }
}

module.exports = { LargerModel };
