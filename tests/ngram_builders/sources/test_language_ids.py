"""File names stand for the language ids of LSP; languages that share code know each other."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from ngram_builders.sources.language_ids import language_of, related_languages


@pytest.mark.parametrize(
    ("name", "language"),
    [("a.py", "python"), ("a.TSX", "typescriptreact"), ("a.cs", "csharp"), ("a.sh", "shellscript"),
     ("Makefile", "makefile"), ("unit/type/list.tcl", "tcl"), ("solve.F90", "fortran"),
     ("top.sv", "systemverilog"), ("rules.mk", "makefile"), ("FindZLIB.cmake", "cmake"),
     ("meson.build", "meson"), ("README.md", None), ("a.json", None), ("noextension", None)],
)  # fmt: skip
def test_language_ids_are_those_of_lsp(name: str, language: str | None) -> None:
    assert language_of(PurePath("folder") / name) == language


def test_relations_between_languages_are_mutual() -> None:
    assert "javascript" in related_languages("typescriptreact")
    assert "typescriptreact" in related_languages("javascript")
    assert "fortran" in related_languages("FortranFreeForm")  # as VS Code calls it
    assert "makefile" in related_languages("make")  # as Vim does
    assert related_languages("python") == {"python"}
