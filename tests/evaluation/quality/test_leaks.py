"""What was trained on is found, what was not is not, and what could not be checked is said."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ngram_builders.errors import UserError
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.quality.examples import read_packages
from spd_lsp.evaluation.quality.leaks import check_leaks, normalised_name
from spd_lsp.evaluation.quality.similarity import code_digest, identifiers, jaccard, varied_windows, window_hashes
from tests.conftest import STARTER


@pytest.fixture(scope="module")
def tokens():
    return ModelTokenizer(STARTER)


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "training.json").write_text(json.dumps({"sources": [{"name": "Other_Rows"}]}))
    return folder


def verdicts(findings):
    return {(found.check, found.subject): found.verdict for found in findings}


def test_without_the_corpus_nothing_is_claimed(repository, model, tokens):
    found = verdicts(check_leaks(read_packages([repository]), tokens, model, []))
    assert found[("names", "all")] == "ok"
    assert {v for (name, _), v in found.items() if name != "names"} == {"not checked"}


def test_a_package_of_a_name_that_was_trained_on_is_a_leak(repository, model, tokens):
    (model / "training.json").write_text(json.dumps({"sources": [{"name": "Rows"}]}))
    assert verdicts(check_leaks(read_packages([repository]), tokens, model, []))[("names", "rows")] == "leak"


def test_a_copy_is_found_by_all_three_checks_even_with_other_comments(repository, model, tokens, tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for path in repository.iterdir():
        (corpus / path.name).write_text("# another licence\n" + path.read_text().replace("    # the comment", "#"))
    found = verdicts(check_leaks(read_packages([repository]), tokens, model, [corpus]))
    for name in ("exact files", "near files", "windows of 13 tokens"):
        assert found[(name, "rows")] == "leak"


def test_other_code_is_none(repository, model, tokens, tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "other.py").write_text(
        "def area(width, height):\n    total = width * height\n    return total * 2\n" * 5
    )
    found = verdicts(check_leaks(read_packages([repository]), tokens, model, [corpus]))
    assert {verdict for (_, subject), verdict in found.items() if subject == "rows"} == {"ok"}


def test_an_empty_corpus_is_refused(repository, model, tokens, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="name the folder of the training corpus"):
        check_leaks(read_packages([repository]), tokens, model, [tmp_path / "empty"])


def test_names_are_compared_as_registries_do():
    assert normalised_name("Foo_Bar.baz-1.2.0") == "foo-bar-baz"
    assert normalised_name("jinja2") == "jinja2"


def test_windows_do_not_reach_from_one_document_into_the_next():
    a, b = np.arange(5), np.arange(5, 9)
    assert len(window_hashes([a, b], 4)) == 3
    assert not np.isin(window_hashes([np.array([3, 4, 5, 6])], 4), window_hashes([a, b], 4)).any()
    assert np.isin(window_hashes([np.array([1, 2, 3, 4])], 4), window_hashes([a, b], 4)).all()


def test_tables_of_numbers_and_licences_are_no_leak(repository, model, tokens, tmp_path):
    licence = "# Permission is hereby granted, free of charge, to any person\n" * 9
    numbers = "x = [" + "0, 1, 1, 0, 1, " * 40 + "]\n"
    for path in repository.iterdir():
        path.write_text(licence + path.read_text() + numbers)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "other.py").write_text(licence + "def area(width, height):\n    return width * height\n" + numbers)
    found = verdicts(check_leaks(read_packages([repository]), tokens, model, [corpus]))
    assert found[("windows of 13 tokens", "rows")] == "ok"


def test_a_window_tells_something_if_its_ids_differ():
    assert varied_windows([np.array([1, 1, 1, 2, 3, 4])], 3, 4).tolist() == [False, True, True]


def test_comments_and_layout_do_not_change_a_digest():
    assert code_digest("a = 1  # one\n\nb = 2\n") == code_digest("a=1\nb  =  2")
    assert code_digest("a = 1") != code_digest("a = 2")
    assert jaccard(identifiers("a b c"), identifiers("b c d")) == 0.5
