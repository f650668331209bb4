"""What words are to the syntax, in several languages."""

from __future__ import annotations

import re

import pytest

from spd_lsp.completion.syntax.languages import LANGUAGES
from spd_lsp.completion.syntax.name_places import ATTRIBUTE, COMMENT, KEYWORD, NAME, STRING, name_places

PYTHON = """
import old
def f(old, b: old, c=old.x):  # old
    old = f"{old} old"
    self.old = g(old=1)
class K:
    old = 3
    def old(self): "é old"
"""
EXPECTED_PYTHON = [
    (NAME, True), (NAME, True), (NAME, False), (NAME, False), (COMMENT, False), (NAME, True), (NAME, False),
    (STRING, False), (ATTRIBUTE, True), (KEYWORD, False), (ATTRIBUTE, True), (ATTRIBUTE, True), (STRING, False),
]  # fmt: skip
SCRIPT = "import { old } from 'x';\nfunction f(old: T) { const old = a.old; return `${old} old` + old * 2; }\n"
EXPECTED_SCRIPT = [
    (NAME, True), (NAME, True), (NAME, True), (ATTRIBUTE, False), (NAME, False), (STRING, False), (NAME, False),
]  # fmt: skip
GO = "package a\nfunc (old T) Old(old int) { old := x.old; f(old) }\ntype K struct { old int }\n"
EXPECTED_GO = [(NAME, True), (NAME, True), (NAME, True), (ATTRIBUTE, False), (NAME, False), (ATTRIBUTE, True)]


def places(language: str, text: str):
    """All places of `old`."""
    return name_places(LANGUAGES[language], text, [found.span() for found in re.finditer(r"\bold\b", text)])


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [("python", PYTHON, EXPECTED_PYTHON), ("typescript", SCRIPT, EXPECTED_SCRIPT), ("go", GO, EXPECTED_GO)],
)
def test_roles_and_bindings(language: str, text: str, expected: list[tuple[str, bool]]):
    assert [(place.role, place.is_bound) for place in places(language, text)] == expected


def test_the_functions_around_are_given_in_characters():
    text = "é = 1\ndef f(old):\n    def g():\n        return old\n"
    [parameter, use] = places("python", text)
    assert [text[start:][:5] for start, _ in use.scopes] == ["def g", "def f"]
    assert parameter.scopes == use.scopes[1:] and parameter.callee == "f"
