"""Cursors stand where a person would want a completion, and at the same places every time."""

from __future__ import annotations

import pytest

from ngram_builders.errors import UserError
from spd_lsp.evaluation.code_lines import CODE, STRING, code_lines
from spd_lsp.evaluation.places import (
    AFTER_TRIGGER,
    LINE_START,
    MID_IDENTIFIER,
    RANDOM_BYTE,
    STRATA,
    TRIGGER,
    length_of,
    read_packages,
    sample,
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


def test_lines_within_a_long_string_are_no_code():
    text = 'query = """\nselect a, b, c from d\n""" + other(1, 2)\nvalue = query + [a, b]\n'
    assert [line.text for line in code_lines(text, "python")] == ['query = """', "value = query + [a, b]"]


def test_characters_of_strings_are_told_from_code_behind_letters_of_many_bytes():
    (line,) = code_lines('größe = läuft("=äöü=", größe)\n', "python")
    assert [line.text[i] for i in range(len(line.text)) if line.kinds[i] == STRING] == list('"=äöü="')
    assert line.kinds[line.text.index("=")] == CODE


def test_other_languages_have_lines_too():
    text = '// a comment, with words\nimport {a} from "b";\nconst x = f(a, 1);\n'
    assert [line.text for line in code_lines(text, "javascript")] == ["const x = f(a, 1);"]


def test_what_a_cursor_is_to_complete_is_the_rest_of_its_line(repository):
    (package,) = read_packages([repository])
    texts = {source.name: source.text for source in package.sources}
    cursors = sample([package], seed=3)
    assert {cursor.stratum for cursor in cursors} >= {LINE_START, AFTER_TRIGGER, MID_IDENTIFIER}
    for cursor in cursors:
        text = texts[cursor.file]
        assert text[cursor.at :].split("\n", 1)[0].rstrip() == cursor.target
        assert text.encode()[cursor.offset :].decode().startswith(cursor.target)
        assert text[cursor.line_start : cursor.line_end].strip() == cursor.line
        typed = text[cursor.line_start : cursor.at]
        if cursor.stratum == LINE_START:
            assert not typed.strip()
        if cursor.stratum == AFTER_TRIGGER:
            assert any(match.end() == len(typed) for match in TRIGGER.finditer(typed))
        if cursor.stratum == MID_IDENTIFIER:
            word = typed[-3:].lstrip("(. =[,")
            assert 1 <= len(word) <= 3
            assert cursor.target[0].isalnum() or cursor.target[0] == "_"


def test_triggers_within_strings_are_none(repository):
    (package,) = read_packages([repository])
    for seed in range(30):
        for cursor in sample([package], seed=seed):
            if cursor.stratum == AFTER_TRIGGER:
                assert not cursor.target.startswith(("named", " named"))


def test_the_same_seed_gives_the_same_places_and_fewer_files_their_beginning(repository):
    packages = read_packages([repository])
    cursors = sample(packages, seed=1)
    assert cursors == sample(packages, seed=1)
    assert cursors != sample(packages, seed=2)
    fewer = sample(packages, seed=1, files=2)
    assert fewer == cursors[: len(fewer)]


def test_no_file_has_two_places_in_one_line_or_more_than_one_of_a_stratum(repository):
    cursors = sample(read_packages([repository]), seed=0)
    assert len({(c.file, c.line_start) for c in cursors}) == len(cursors)
    assert len({(c.file, c.stratum) for c in cursors}) == len(cursors)
    assert len({c.key for c in cursors}) == len(cursors)
    assert RANDOM_BYTE in STRATA


def test_folders_take_turns(repository, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for path in repository.iterdir():
        (other / path.name).write_text(path.read_text())
    names = [c.package for c in sample(read_packages([repository, other]), seed=0)]
    assert names[0] == "rows"
    assert "other" in names[: len(STRATA) + 1]


def test_a_folder_without_sources_and_two_of_one_name_are_refused(repository, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match="two source files or more"):
        read_packages([empty])
    with pytest.raises(UserError, match="different names"):
        read_packages([repository, repository])


@pytest.mark.parametrize(
    ("target", "expected"), [("a", "1-4"), ("f(x, y)", "5-9"), ("a = f(x, y)[1][2]", "10-24")]
)
def test_lengths_are_counted_in_code_tokens(target, expected):
    assert length_of(target) == expected
