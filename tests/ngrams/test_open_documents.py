"""The names of open documents that a word may become, likeliest first; secrets are no names."""

from __future__ import annotations

import re

import pytest

from ngram_builders.sources.masking import mask
from spd_lsp.ngrams.open_documents import OpenDocument, likely_words, names_from, sorted_names
from tests.planted import lines


def names_at(marked, *others):
    document = OpenDocument("a", None, "python", marked.replace("¦", ""))

    def near(start):
        return [name for text in others for name in names_from(sorted_names(mask(text)), start)]

    return list(likely_words(document.matching_names(marked.index("¦"), near), []))


@pytest.mark.parametrize(
    ("marked", "names"),
    [
        ("config = 1\ncontext = 2\nx = con¦\n", ["context", "config"]),  # the later one first
        (
            "y = config\ncontext = 2\nx = con¦\n",
            ["config", "context"],
        ),  # unless the other one stood behind the same
        ("self.config()\ncontext = 2\nself. con¦\n", ["config", "context"]),
        ("if config:\n    context = 2\nif con¦\n", ["config", "context"]),
        ("  config()\nf(context)\n  con¦\n", ["config", "context"]),  # or first on its line, too
        ("x = con¦\ncontext = 2\n", ["context"]),
        ("config = 1\nx = c¦\n", []),  # of one letter
        ("config = 1\nx = ¦\n", []),
        ("config = 1\nx = my_con¦\n", []),
        ("config = 1\nx = config¦\n", []),
        ("config = 1\nx = con¦tent\n", []),
        ("1234 = 1\nx = 12¦\n", []),
        ("größe = 1\nx = grö¦\n", ["größe"]),
        (f"x{'y' * 100} = 1\nx = xy¦\n", []),
    ],
)
def test_the_names_of_a_document_that_a_word_begins(marked, names):
    assert names_at(marked) == names


def test_names_of_other_open_documents_matter_where_this_one_has_none():
    other = "contents = 1\ncontext = 2\n"
    assert names_at("x = con¦\n", other) == ["contents", "context"]
    assert names_at("config = 1\nx = con¦\n", other)[0] == "config"


def test_of_many_names_only_those_that_are_worth_a_place_are_left():
    many = " ".join(f"config_{number}" for number in range(200))
    assert names_at(f"{many}\nx = con¦\n") == []
    assert names_at("x = con¦\n", many) == []
    document = OpenDocument("a", None, "python", f"{many}\nx = con\n")
    names = document.matching_names(document.text.index("con\n") + 3)
    likely = likely_words(names, [("config_7", 0.5), ("config_3", 0.4), ("connect", 0.3)])
    assert list(likely)[:2] == ["config_7", "config_3"]
    assert set(likely) <= {"config_7", "config_3", "connect"}


@pytest.mark.parametrize("what", lines())
def test_no_secret_is_a_name(what):
    line, secret = lines()[what]
    begun = re.match(r"[A-Za-z]?\w{3}", secret)
    if begun and begun[0][0].isalpha():
        assert names_at(f"{line}\n{begun[0]}¦") == []
        assert names_at(f"{begun[0]}¦", line) == []
