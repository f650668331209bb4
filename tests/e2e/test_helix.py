"""A real Helix with our languages.toml and the bundled model: a draft is listed, accepted and saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.helix import MISSING, helix
from tests.processes import wait_until

TEXT = "import json\n\n\ndef load(path):\n    with open(path) as file:\n        return json."

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(MISSING), reason=MISSING)]


@pytest.mark.parametrize("way", ["asked for", "typed"])
def test_a_draft_is_listed_and_accepted_and_another_enter_begins_a_line(
    tmp_path: Path, own_folders: None, way: str
):
    file = tmp_path / "reader.py"
    with helix(file, f"{TEXT}\n") as editor:
        editor.type("geglA")  # to the end of the last line
        draft = editor.open_menu()[0]
        typed = ""
        if way == "typed":  # the menu follows, and what Tab selects in it stays selected
            typed = draft[0]
            editor.press("Escape")
            editor.type(f"A{typed}")
            draft = wait_until("the menu follows", lambda: (editor.wait(0.5), editor.menu)[1])[0]
        editor.press("Tab")  # select the first
        editor.wait(1)
        editor.press("Enter", "Enter")  # accept it, and begin a line
        editor.type("pass")
        editor.save()
    assert draft.isprintable() and draft.startswith(typed)
    assert file.read_text() == f"{TEXT}{draft}\n        pass\n"
