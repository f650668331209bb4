"""Copies are of what stands elsewhere, and know nothing of the file under test's own line."""

from __future__ import annotations

from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.quality.examples import read_packages, sample_examples
from spd_lsp.evaluation.quality.held_out_ngrams import PackageNgrams
from spd_lsp.evaluation.quality.lexeme_index import LexemeIndex, find_copies
from tests.conftest import STARTER

OTHER = """for name in names:
    print(name, file=out)
for name in rows:
    print(name, file=out)
for row in rows:
    print(row)
"""
OWN = ["def write(rows):\n    for name in rows:\n", "\n    return rows\n"]


def copies(before, texts=(OTHER,), own=OWN, without=(), most=6):
    package = LexemeIndex(texts)
    return find_copies([LexemeIndex(own, package.vocabulary), package], before, without, most)


def test_the_longest_run_comes_first_then_shorter_ones_the_most_frequent_first():
    found = copies("    for name in rows:\n        print(")
    assert found == ["name, file=out)", "row)", "rows):"]


def test_a_word_that_was_begun_is_continued():
    assert copies("    print(na")[0] == "me, file=out)"
    assert copies("    print(name")[0] == ", file=out)"
    assert copies("    print(xy") == []


def test_blanks_and_empty_lines_make_no_difference():
    assert copies("for name in rows:\n\n\n  ")[0] == "print(name, file=out)"
    assert copies("for  row   in ")[0] == "rows:"


def test_what_does_not_count_is_not_copied():
    texts = (OTHER, "print(name, flush=True)\n")
    assert copies("print(name, ", texts, without={0})[0] == "flush=True)"
    assert copies("print(name, ", texts, without={0, 1}) == []


def test_the_end_of_the_text_above_the_cursor_is_no_match_of_itself():
    assert copies(OWN[0], own=OWN)[0] == "print(name, file=out)"


def test_the_file_under_test_is_known_without_the_line_only(repository):
    (package,) = read_packages([repository])
    file = next(file for file in package.files if file.name == "reader.py")
    example = next(one for one in sample_examples([package]) if one.file == "reader.py")
    around = PackageNgrams(package, ModelTokenizer(STARTER), {}).without(file).surroundings(example)
    assert around.removed == [next(i for i, text in enumerate(around.package.texts) if text == file.text)]
    assert "".join(around.own.texts) == file.text[: example.line_start] + file.text[example.line_end :]
