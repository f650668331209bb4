"""`ngrams use` adds, drops and replaces tables as people expect, and loses no choice that they did not give up."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ngram_builders.small_tables import names, writer

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shop(tmp_path, registry):
    """A repository with a table of its own, and two others."""
    folder = tmp_path / "shop"
    folder.mkdir()
    registry.install("shop", writer(5), roots=[folder])
    registry.install("team", writer(6))
    registry.install("old", writer(7))
    return folder


def serving(registry, folder):
    return dict(names(registry.tables_for(folder / "x.py", "python")))


def test_added_tables_serve_beside_the_folders_own(run, registry, shop):
    output = run("ngrams", "use", "team", "--add", "--workspace", shop)
    assert output == f"{shop} is also served by team (learnt weight)\n"
    assert serving(registry, shop) == {"shop": 0.7, "team": 0.05}
    run("ngrams", "use", "old=0.5", "--add", "--workspace", shop)
    assert serving(registry, shop) == {"shop": 0.7, "team": 0.05, "old": 0.5}
    assert f"{shop} is also served by team (learnt weight), old (0.5)" in run("ngrams", "list")
    assert f"files in {shop} besides their own (0.5)" in run("ngrams", "show", "old")
    assert run("ngrams", "use", "team", "--drop", "--workspace", shop) == f"{shop} is also served by old (0.5)\n"
    assert serving(registry, shop / "inner") == {"shop": 0.7, "old": 0.5}
    output = run("ngrams", "use", "old", "--drop", "--workspace", shop)
    assert output == f"{shop} is served by the tables built from it\n"
    assert serving(registry, shop) == {"shop": 0.7}


def test_adding_to_a_choice_keeps_it_one(run, registry, shop):
    run("ngrams", "use", "old", "--workspace", shop)
    assert run("ngrams", "use", "team", "--add", "--workspace", shop) == (
        f"{shop} is served by old (learnt weight), team (learnt weight)\n"
    )
    assert serving(registry, shop) == {"old": 0.05, "team": 0.05}
    run("ngrams", "use", "old", "--drop", "--workspace", shop)
    assert serving(registry, shop) == {"team": 0.05}


def test_an_inner_choice_is_not_joined_by_what_was_added_around_it(run, registry, shop):
    (shop / "inner").mkdir()
    run("ngrams", "use", "team", "--add", "--workspace", shop)
    run("ngrams", "use", "old", "--workspace", shop / "inner")
    assert serving(registry, shop / "inner") == {"old": 0.05}
    run("ngrams", "unuse", "--workspace", shop / "inner")
    assert serving(registry, shop / "inner") == {"shop": 0.7, "team": 0.05}


def test_no_choice_is_undone_without_a_word(run, registry, shop):
    run("ngrams", "use", "old", "--workspace", shop)
    refused = run("ngrams", "use", "--workspace", shop, status=1)
    assert "name the tables to use; `spd-lsp ngrams unuse` undoes a choice" in refused
    assert serving(registry, shop) == {"old": 0.05}
    assert run("ngrams", "unuse", "--workspace", shop).startswith(f"{shop} is served")
    assert "old" not in serving(registry, shop)


def test_a_choice_is_not_replaced_unless_asked_for(run, registry, shop):
    run("ngrams", "use", "team", "--workspace", shop)
    refused = run("ngrams", "use", "old", "--workspace", shop, status=1)
    assert f"{shop} is served by team (learnt weight); this choice leaves out team; keep it with --add" in refused
    assert serving(registry, shop) == {"team": 0.05}
    run("ngrams", "use", "team=0.5", "--workspace", shop)  # only its weight
    run("ngrams", "use", "team", "old", "--workspace", shop)
    run("ngrams", "use", "old", "--replace", "--workspace", shop)
    assert serving(registry, shop) == {"old": 0.05}
    run("ngrams", "use", "team", "--language", "python")
    refused = run("ngrams", "use", "old", "--language", "python", status=1)
    assert "python files are also served by team (learnt weight); this choice leaves out team" in refused
    assert dict(registry.assignments().languages["python"]) == {"team": None}
    run("ngrams", "use", "old", "--add", "--language", "python")
    assert dict(registry.assignments().languages["python"]) == {"team": None, "old": None}


def test_a_choice_says_which_own_tables_no_longer_serve(run, shop):
    output = run("ngrams", "use", "team", "--workspace", shop)
    assert output.splitlines()[1] == "no longer by shop; to keep other tables beside a choice, add --add"
    assert "no longer" not in run("ngrams", "use", "team", "shop", "--workspace", shop)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--drop"], "name the tables to use"),
        (["team", "--add", "--drop"], "--add, --drop and --replace cannot be combined"),
        (["team", "--drop"], "team was not chosen: .* is served by the tables built from it"),
    ],
)
def test_what_cannot_be_meant_is_refused(run, shop, arguments, message):
    output = run("ngrams", "use", *arguments, "--workspace", shop, status=1)
    assert re.search(message, output)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("answer", "expected"), [("y", "old"), ("n", "team")])
def test_in_a_terminal_a_person_is_asked(run, registry, shop, data, answer, expected):
    import pty

    run("ngrams", "use", "team", "--workspace", shop)
    terminal, end = pty.openpty()
    os.write(terminal, f"{answer}\n".encode())
    command = ["ngrams", "use", "old", "--workspace", str(shop)]
    program = [sys.executable, "-m", "spd_lsp", "--data-dir", str(data), *command]
    done = subprocess.run(program, stdin=end, capture_output=True, text=True, cwd=ROOT)
    os.close(terminal)
    os.close(end)
    assert "Go on? [y/N]" in done.stderr
    assert (done.returncode == 0) == (answer == "y")
    assert list(serving(registry, shop)) == [expected]


def test_pruning_keeps_what_was_added(run, registry, shop):
    run("ngrams", "use", "team", "--add", "--workspace", shop)
    run("ngrams", "prune", "--gone")
    assert serving(registry, shop) == {"shop": 0.7, "team": 0.05}
    run("ngrams", "remove", "team", "--yes")
    assert serving(registry, shop) == {"shop": 0.7}


def test_a_table_that_was_chosen_is_removed_only_if_that_is_confirmed(run, registry, shop):
    run("ngrams", "use", "team", "--add", "--workspace", shop)
    run("ngrams", "use", "old", "--language", "python")
    refused = run("ngrams", "remove", "shop", "team", "old", status=1)
    lines = f"{shop} is also served by team (learnt weight); python files are also served by old (learnt weight)"
    assert f"what you chose would be lost: {lines}; to remove them all the same, add --yes" in refused
    assert registry.names() == ["old", "shop", "team"]
    registry.assign_dependencies(shop, [("shop", 0.7)])  # nobody chose that
    assert run("ngrams", "remove", "shop") == "removed shop\n"
    assert run("ngrams", "remove", "team", "old", "--yes") == "removed team\nremoved old\n"
