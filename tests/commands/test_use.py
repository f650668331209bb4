"""`ngrams use` chooses tables for a folder or a language, and says which ones serve no longer."""

from __future__ import annotations

import pytest

from tests.ngram_builders.small_tables import names, writer


@pytest.fixture
def shop(tmp_path, registry):
    """A repository with a table of its own, and two others."""
    folder = tmp_path / "shop"
    folder.mkdir()
    registry.install("shop", [writer(5)], roots=[folder])
    registry.install("team", [writer(6)])
    registry.install("old", [writer(7)])
    return folder


def serving(registry, folder):
    return dict(names(registry.tables_for(folder / "x.py", "python")))


def test_chosen_tables_serve_instead_of_the_folders_own(run, registry, shop):
    output = run("ngrams", "use", "team", "old=0.5", "--workspace", shop)
    assert output == f"{shop} is served by team (default weight), old (0.5)\nno longer by shop\n"
    assert serving(registry, shop / "inner") == {"team": 0.3, "old": 0.5}
    assert f"{shop} is served by team (default weight), old (0.5)" in run("ngrams", "list")
    output = run("ngrams", "use", "shop", "team", "--workspace", shop)
    assert output == f"{shop} is served by shop (default weight), team (default weight)\nno longer by old\n"
    assert serving(registry, shop) == {"shop": 0.7, "team": 0.3}


def test_an_inner_choice_counts_until_it_is_undone(run, registry, shop):
    (shop / "inner").mkdir()
    run("ngrams", "use", "team", "--workspace", shop)
    run("ngrams", "use", "old", "--workspace", shop / "inner")
    assert serving(registry, shop / "inner") == {"old": 0.3}
    run("ngrams", "unuse", "--workspace", shop / "inner")
    assert serving(registry, shop / "inner") == {"team": 0.3}
    assert run("ngrams", "unuse", "--workspace", shop) == f"{shop} is served by the tables built from it\n"
    assert serving(registry, shop) == {"shop": 0.7}


def test_a_languages_tables_serve_beside_those_built_from_a_folder(run, registry, shop):
    run("ngrams", "use", "team", "--language", "python")
    assert serving(registry, shop) == {"shop": 0.7, "team": 0.3}
    output = run("ngrams", "use", "old", "--language", "python")
    assert output == "python files are also served by old (default weight)\n"
    assert serving(registry, shop) == {"shop": 0.7, "old": 0.3}
    output = run("ngrams", "unuse", "--language", "python")
    assert output == "python files are served by the tables built from their folders\n"
    assert serving(registry, shop) == {"shop": 0.7}


def test_no_choice_is_undone_without_a_word(run, registry, shop):
    run("ngrams", "use", "old", "--workspace", shop)
    run("ngrams", "use", "--workspace", shop, status=2)
    run("ngrams", "use", "nobody", "--workspace", shop, status=1)
    assert serving(registry, shop) == {"old": 0.3}


def test_a_table_that_was_chosen_is_removed_only_if_that_is_confirmed(run, registry, shop):
    run("ngrams", "use", "team", "--workspace", shop)
    run("ngrams", "use", "old", "--language", "python")
    refused = run("ngrams", "remove", "shop", "team", "old", status=1)
    lines = f"{shop} is served by team (default weight); python files are also served by old (default weight)"
    assert f"what you chose would be lost: {lines}; to remove them all the same, add --yes" in refused
    assert registry.names() == ["old", "shop", "team"]
    assert run("ngrams", "remove", "shop") == "removed shop\n"
    assert run("ngrams", "remove", "team", "old", "--yes") == "removed team\nremoved old\n"
