"""What somebody types in a real Emacs, with our recipe and stock settings, is what stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.emacs import CLIENTS, READY, emacs, lisp_string, missing
from tests.e2e.installed import HOW, second_server
from tests.e2e.nvim import environment
from tests.e2e.typist import CODE, changed_lines, type_code
from tests.processes import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(missing("eglot")), reason=missing("eglot"))]


# The server beside ours comes with lsp-mode: eglot runs one in a buffer.
@pytest.mark.parametrize(
    ("client", "menu", "second"), [("eglot", "", ""), ("eglot", "company", ""), ("lsp-mode", "company", "jedi")]
)
def test_the_text_is_what_was_typed(
    client: str, menu: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if reason := missing(client, *([menu] if menu else [])):
        pytest.skip(reason)
    if second and not second_server(second):
        pytest.skip(f"needs {second}; {HOW}")
    for name, value in (environment(tmp_path) | {"HOME": str(tmp_path / "home")}).items():
        monkeypatch.setenv(name, value)
    beside = " ".join(map(lisp_string, second_server(second))) if second else ""
    configuration = [CLIENTS[client].format(command=beside), "(electric-pair-mode)"]
    configuration += [f"(global-{menu}-mode)"] if menu else []
    file = tmp_path / "project" / "counter.py"
    with emacs(file, "\n".join(configuration)) as editor:
        wait_until("the model is loaded", lambda: editor.evaluates(READY[client], '"normal"'))
        swallowed = type_code(editor, CODE)
        editor.save()
        assert changed_lines(CODE, file.read_text()) == []
        assert swallowed == []
