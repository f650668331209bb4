"""Editors and the command line exclude the same files."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from ngram_builders.sources.secret_files import is_secret
from spd_lsp.commands.complete import language_id
from spd_lsp.lsp.request import exclusion_reason
from spd_lsp.settings import Settings


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("README.md", "completions are off for markdown"),
        ("notes.TXT", "completions are off for plaintext"),
        ("rows.csv", "completions are off for csv"),
        (".git/COMMIT_EDITMSG", "completions are off for git-commit"),
        (".git/rebase-merge/git-rebase-todo", "completions are off for git-rebase"),
        (".env", "this file may hold secrets"),
        ("credentials.py", "this file may hold secrets"),
        ("app.py", ""),
        ("CMakeLists.txt", ""),
        ("data.json", ""),
        ("unknown.xyz", ""),
        ("Makefile", ""),
    ],
)
def test_languages_disabled_by_default_and_files_that_may_hold_secrets(name: str, why: str):
    path, disabled = PurePath(name), Settings().disabled_languages
    assert exclusion_reason(language_id(path), disabled, is_secret(path)) == why


def test_any_language_can_be_enabled_or_disabled_but_no_file_of_secrets():
    assert exclusion_reason("markdown", (), False) == ""
    disabled = exclusion_reason("python", ("python",), False)
    assert disabled == "completions are off for python"
    assert exclusion_reason("dotenv", (), True) == "this file may hold secrets"
