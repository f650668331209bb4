"""A preview counts what a build would count, and writes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngram_builders.build import build
from ngram_builders.errors import UserError
from ngram_builders.ngrams import TokenSpace
from ngram_builders.preview import find_first_copy, preview
from ngram_builders.registry.registry import Registry
from ngram_builders.sources.rules.selection import Selection
from tests.ngram_builders.byte_encoder import END, VOCABULARY, encode

CODE = b"import os\r\nprint(os.name)\r\n"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    files = {
        "a.py": CODE,
        "b.go": b"package main\n",
        "c.py": CODE.replace(b"\r", b""),
        ".env": b"A=1\n",
        "d.md": b"#\n",
    }
    for name, data in files.items():
        (root / name).write_bytes(data)
    return root


def test_a_preview_agrees_with_the_build(repo: Path, tmp_path: Path) -> None:
    expected = preview([repo])
    assert expected.files == {"go": 1, "python": 1}
    assert expected.bytes == {"go": len("package main\n"), "python": len(CODE)}
    options = {"token_space": TokenSpace("bytes", VOCABULARY, END)}
    summary = build([repo], None, encode, registry=Registry(tmp_path / "data"), **options)  # type: ignore[arg-type]
    assert expected.skipped == summary.skipped == {"duplicate": 1, "not source code": 1, "secret": 1}
    assert sum(expected.files.values()) == summary.files


def test_a_preview_of_one_language_without_sources_is_refused(repo: Path) -> None:
    assert preview([repo], Selection("go")).files == {"go": 1}
    with pytest.raises(UserError, match="no source code in"):
        preview([repo], Selection("rust"))


def test_of_identical_files_the_first_is_counted(repo: Path) -> None:
    assert find_first_copy(repo / "c.py", [repo]) == (repo / "a.py").resolve()
    assert find_first_copy(repo / "a.py", [repo]) is None
