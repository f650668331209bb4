"""Examples are where a person would want a completion, and the same every time."""

from __future__ import annotations

import pytest

from ngram_builders.errors import UserError
from spd_lsp.evaluation.quality.code_lines import code_lines
from spd_lsp.evaluation.quality.examples import (
    _TRIGGER,
    AFTER_TRIGGER,
    LINE_START,
    MID_IDENTIFIER,
    read_packages,
    sample_examples,
)


def test_imports_comments_documentation_and_short_lines_are_left_out(repository):
    text = (repository / "table.py").read_text()
    lines = [line.text.strip() for line in code_lines(text, "python")]
    assert lines == [
        "def __init__(self, path, rows=None):",
        "self.path = path",
        "self.rows = dict(rows or {})",
        "def lookup(self, name, default=None):",
        "found = self.rows.get(name, default)",
        "if found is None:",
        'raise KeyError("no row = named", name)',
        "def counts_of(self, names):",
        "return collections.Counter(name for name in names if name in self.rows)",
    ]


def test_what_a_cursor_is_to_complete_is_the_rest_of_its_line(repository):
    (package,) = read_packages([repository])
    texts = {file.name: file.text for file in package.files}
    examples = sample_examples([package], seed=3)
    assert {example.stratum for example in examples} >= {LINE_START, AFTER_TRIGGER, MID_IDENTIFIER}
    for example in examples:
        text = texts[example.file]
        assert text[example.at :].split("\n", 1)[0].rstrip() == example.target
        assert text.encode()[example.offset :].decode().startswith(example.target)
        assert text[example.line_start : example.line_end].strip() == example.line
        typed = text[example.line_start : example.at]
        if example.stratum == LINE_START:
            assert not typed.strip()
        if example.stratum == AFTER_TRIGGER:
            assert any(match.end() == len(typed) for match in _TRIGGER.finditer(typed))
        if example.stratum == MID_IDENTIFIER:
            word = typed[-3:].lstrip("(. =[,")
            assert 1 <= len(word) <= 3
            assert example.target[0].isalnum() or example.target[0] == "_"


def test_the_same_seed_gives_the_same_places_and_fewer_files_their_beginning(repository):
    packages = read_packages([repository])
    examples = sample_examples(packages, seed=1)
    assert examples == sample_examples(packages, seed=1)
    assert examples != sample_examples(packages, seed=2)
    fewer = sample_examples(packages, seed=1, files=2)
    assert fewer == examples[: len(fewer)]


def test_a_folder_without_sources_and_two_of_one_name_are_refused(repository, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match="at least two are needed"):
        read_packages([empty])
    with pytest.raises(UserError, match="two folders are called rows"):
        read_packages([repository, repository])
