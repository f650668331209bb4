"""Where the VS Code extension says that a list hides drafts, and what it then turns off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.node import needs_node, run_node

pytestmark = needs_node

VSCODE = """
const { drafts, typed, selected, others, setting } = JSON.parse(process.argv[2])[0];
const position = { character: typed.length, isEqual: (other) => other === position };
const document = { getText: () => typed, languageId: "go" };
const written = [];
module.exports = {
  written, document, position,
  selected: selected && { text: selected, range: { start: 0 } },
  session: { isRunning: true, ghostTexts: async () => drafts, othersItems: async () => others },
  CompletionItemKind: { Text: 0, Function: 2 },
  ConfigurationTarget: { Global: "the user's" },
  Range: class {},
  workspace: { getConfiguration: () => ({ get: () => setting, update: (...it) => written.push(it) }) },
  window: {
    activeTextEditor: { document, selection: { active: position } },
    showInformationMessage: async (message, ...offers) => (written.push([message, ...offers]), offers[0]),
  },
};
"""
SCRIPT = """
const { written, document, position, selected, session } = require("vscode");
const { Words } = require(sources + "/words.js");
const known = {};
const memory = { get: (key) => known[key], update: async (key, value) => { known[key] = value; } };
const words = new Words(session, memory, ["python", "go"]);
(async () => {
  words.note(document, position, selected);
  clearTimeout(words.timer);
  await words.tell();
  await words.tell();
  const told = written.splice(0);
  console.log(JSON.stringify([told, (await words.hiding()) ?? null]));
})();
"""
WORD = [{"kind": 0, "label": "timeout"}]
HIDDEN = {"drafts": ["xt()"], "typed": "te", "selected": "timeout", "others": WORD, "setting": "matchingDocuments"}
MESSAGE = "spd-lsp: VS Code's list of words hides a draft, and Tab takes timeout from it. Escape closes the list."
MEND = "Show drafts instead of words"


def run(tmp_path: Path, changed: dict[str, Any]) -> Any:
    return run_node(tmp_path, SCRIPT, HIDDEN | changed, modules={"vscode": VSCODE})


def test_a_word_that_hides_a_draft_is_told_once_and_one_click_lists_no_words(tmp_path: Path):
    told, hidden = run(tmp_path, {})
    written = ["[python][go]", {"editor.wordBasedSuggestions": "off"}, "the user's"]
    assert told == [[MESSAGE, MEND], written]
    assert hidden == {"text": "timeout", "isWord": True}


@pytest.mark.parametrize(
    ("changed", "hides"),
    [
        ({"drafts": []}, False),
        ({"drafts": ["xt()", "timeout=5"], "typed": ""}, False),
        ({"others": [{"kind": 2, "label": {"label": "timeout"}}, {"kind": 0, "label": "text"}]}, True),
        ({"setting": "off"}, True),
    ],
    ids=["no draft", "a draft goes on so", "beside words", "no words"],
)
def test_nothing_is_told_of_where_no_word_hides_a_draft(tmp_path: Path, changed: dict[str, Any], hides: bool):
    told, hidden = run(tmp_path, changed)
    assert told == []
    assert hidden == ({"text": "timeout", "isWord": False} if hides else None)
