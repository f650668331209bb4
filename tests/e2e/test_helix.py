"""A real Helix with our languages.toml and the bundled model: a draft is listed, accepted and saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.helix import MISSING, helix
from tests.e2e.nvim import environment

TEXT = "import json\n\n\ndef load(path):\n    with open(path) as file:\n        return json."

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(MISSING), reason=MISSING)]


def test_a_draft_is_listed_and_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "reader.py"
    with helix(file, f"{TEXT}\n") as editor:
        editor.type("geglA")  # to the end of the last line
        draft = editor.open_menu()[0]
        editor.press("Tab", "Enter")  # select the first and accept it
        editor.save()
    assert draft.isprintable() and file.read_text() == f"{TEXT}{draft}\n"
