"""Editors and the command line exclude the same files."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from spd_lsp.completion.exclusions import exclusion_reason, language_id
from spd_lsp.settings import Settings
from tests.lsp.lsp_client import FakeCompleter, at, session, texts


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("README.md", "completions are off for markdown"),
        ("notes.TXT", "completions are off for plaintext"),
        (".git/COMMIT_EDITMSG", "completions are off for git-commit"),
        (".env", "this file may hold secrets"),
        ("credentials.py", "this file may hold secrets"),
        ("server.PEM", "this file may hold secrets"),
        ("CMakeLists.txt", ""),
        ("unknown.xyz", ""),
    ],
)
async def test_languages_disabled_by_default_and_files_that_may_hold_secrets(name: str, why: str):
    path = PurePath(name)
    assert exclusion_reason(path, Settings()) == why
    async with session(FakeCompleter()) as editor:
        await editor.start_and_load()
        editor.open("x = \n", f"file:///code/{name}", language_id(path) or "")
        answer = await editor.request("textDocument/completion", at(0, 4, uri=f"file:///code/{name}"))
        status = await editor.request("spd-lsp/status", {"textDocument": {"uri": f"file:///code/{name}"}})
    assert bool(texts(answer)) == (not why)
    assert status["documentReason"] == status["reason"] == why


def test_any_language_can_be_enabled_or_disabled_but_no_file_of_secrets():
    none, python = Settings(disabled_languages=()), Settings(disabled_languages=("python",))
    assert exclusion_reason(PurePath("README.md"), none) == ""
    assert exclusion_reason(PurePath("a.py"), python) == "completions are off for python"
    assert exclusion_reason(PurePath(".env"), none) == "this file may hold secrets"
