"""What somebody types in a real Helix, with our recipe and stock settings, is what stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.helix import MISSING, helix
from tests.e2e.installed import HOW, second_server
from tests.e2e.typist import CODE, changed_lines, type_code

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(MISSING), reason=MISSING)]


@pytest.mark.parametrize("second", ["", "jedi"])
def test_the_text_is_what_was_typed(second: str, tmp_path: Path, own_folders: None):
    if second and not second_server(second):
        pytest.skip(f"needs {second}; {HOW}")
    file = tmp_path / "counter.py"
    with helix(file, second=second_server(second) if second else []) as editor:
        editor.type("iretur")
        editor.open_menu()  # waits for the model to load
        editor.press("Escape", "Escape")
        editor.type("%c")  # replace all
        swallowed = type_code(editor, CODE)
        editor.save()
        assert changed_lines(CODE, file.read_text()) == []
        assert swallowed == []
