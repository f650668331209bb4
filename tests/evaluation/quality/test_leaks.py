"""A package that the model was trained on is refused; where nothing is known, that is said."""

from __future__ import annotations

import json

import pytest

from ngram_builders.errors import UserError
from spd_lsp.evaluation.quality.examples import read_packages
from spd_lsp.evaluation.quality.leaks import normalised_name, refuse_leaks


def test_a_package_of_a_name_that_was_trained_on_is_refused(repository, tmp_path):
    packages = read_packages([repository])
    assert "does not say" in refuse_leaks(packages, tmp_path)
    (tmp_path / "training.json").write_text(json.dumps({"sources": [{"name": "Other_Rows"}]}))
    assert "compared with the 1" in refuse_leaks(packages, tmp_path)
    (tmp_path / "training.json").write_text(json.dumps({"sources": [{"name": "Rows"}]}))
    with pytest.raises(UserError, match="trained on packages of these names: rows; leave these out"):
        refuse_leaks(packages, tmp_path)


def test_names_are_compared_as_registries_do():
    assert normalised_name("Foo_Bar.baz-1.2.0") == "foo-bar-baz"
    assert normalised_name("jinja2") == "jinja2"
