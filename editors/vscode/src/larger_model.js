// Tells once that a larger model than the bundled one would be quick enough on this machine. Knows status records.
"use strict";

const vscode = require("vscode");

const TOLD = "toldOfLargerModels"; // on this machine
const ENOUGH = 20; // completions after which the time of one is known
const RATIO = 2.4; // so many times as long takes a model of 500 million parameters (HumanEval-Infilling, llama.cpp)
const PATIENCE = 500; // milliseconds
const CHOOSE = "Choose the model";

class LargerModel {
  /** memory: of this machine. choose: lets the user choose a model. */
  constructor(memory, choose) {
    Object.assign(this, { memory, choose, times: [] });
  }

  /** Note a status record, and tell the user if enough of them say so. */
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
