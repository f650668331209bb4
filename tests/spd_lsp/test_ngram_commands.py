"""The commands about n-grams: what they print is what was done; what goes wrong is one sentence."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from spd_lsp.cli import main


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def run(data):
    def run(*arguments, status=0):
        result = CliRunner().invoke(main, ["--data-dir", str(data), *map(str, arguments)])
        assert result.exit_code == status, result.output
        assert "Traceback" not in result.output
        return result.output

    return run


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "shop.py").write_text("def sell(item):\n    return item.price\n" * 20, encoding="utf-8")
    (folder / ".gitignore").write_text("private.py\n", encoding="utf-8")
    (folder / "private.py").write_text("secret = 1\n", encoding="utf-8")
    (folder / ".env").write_text("KEY=1\n", encoding="utf-8")
    return folder


def test_build_says_what_was_counted_and_what_was_left_out_and_why(run, repository, data):
    counted, left_out, table = run("build-ngrams", repository).strip().splitlines()[-3:]
    assert re.fullmatch(r"shop: 1 files, \d+ tokens, \d+ n-grams, \d+\.\d MiB, \d+\.\d s", counted)
    assert "1 ignored by .gitignore" in left_out
    assert "secret" in left_out
    assert table.removeprefix("table: ").startswith(str(data))


def test_list_and_show_and_remove(run, repository):
    assert "no n-gram tables yet" in run("ngrams", "list")
    run("build-ngrams", repository, "--domain", "till")
    assert re.search(r"till +\d+ tokens .*shop", run("ngrams", "list"))
    shown = run("ngrams", "show", "till")
    assert "python" in shown
    assert "2, 3, 4, 5, 6" in shown
    assert run("ngrams", "remove", "till") == "removed till\n"
    assert "no n-gram tables yet" in run("ngrams", "list")


def test_use_chooses_tables_for_a_workspace(run, repository, tmp_path):
    run("build-ngrams", repository)
    assert "is served by shop (0.5)" in run("ngrams", "use", "shop=0.5", "--workspace", tmp_path)
    assert "is served by the tables built from it" in run("ngrams", "use", "--workspace", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ngrams", "show", "nothing"], "nothing"),
        (["ngrams", "remove", "nothing"], "nothing"),
        (["ngrams", "use", "nothing"], "nothing"),
        (["ngrams", "use", "shop=2"], "expected NAME=WEIGHT with a weight above 0 and at most 1, found 'shop=2'"),
        (["build-ngrams", "no/such/folder"], "no/such/folder"),
        (["build-ngrams", ".", "--orders", "1-9"], "expected --orders as a range within 2-6 .*found '1-9'"),
        (["build-ngrams", ".", "--domain", "../evil"], "evil"),
        (["build-ngrams", ".", "--model", "no-such-model"], "expected a model's folder"),
    ],
)
def test_what_cannot_be_done_is_named(run, repository, monkeypatch, arguments, message):
    monkeypatch.chdir(repository)
    assert re.search(message, run(*arguments, status=1))


def test_a_repository_without_source_lists_what_was_left_out(run, tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "a.jpg").write_bytes(b"\xff\xd8\0\0")
    assert re.search(r"expected .*photos.* found none.*1 not source code", run("build-ngrams", folder, status=1))


def test_a_data_folder_that_cannot_be_written_is_named(run, repository, data):
    data.write_text("a file where the folder should be")
    assert str(data) in run("build-ngrams", repository, status=1)


def test_doctor_names_a_truncated_table_and_how_to_mend_it(run, repository, data):
    run("build-ngrams", repository)
    (table,) = data.rglob("*.ngt")
    table.write_bytes(table.read_bytes()[:-64])
    output = run("doctor", status=1)
    assert re.search(r"wrong +n-grams shop .*run: spd-lsp build-ngrams", output)
    assert re.search(r"ok +model +starter on ", output)
    assert "1 thing to mend" in output


def test_doctor_names_a_table_of_another_tokenizer(run, repository, data):
    from ngram_builders.build import build
    from ngram_builders.registry import Registry

    def letters(texts):
        return [[ord(letter) for letter in text] for text in texts]

    registry = Registry(data)
    build([repository], None, letters, end_of_text=0, fingerprint="other", vocab_size=256, registry=registry)
    assert re.search(r"wrong +n-grams shop .*built with tokenizer other", run("doctor", status=1))


def test_doctor_finds_nothing_wrong_in_a_fresh_installation(run):
    lines = run("doctor").splitlines()
    assert all(line.startswith("ok ") for line in lines), lines
    assert {line.split()[1] for line in lines} >= {"spd-lsp", "torch", "pygls", "model", "settings", "data"}


def test_a_broken_index_is_named_by_show(run, repository, data):
    run("build-ngrams", repository)
    (data / "shop" / "domain.msgpack").write_bytes(b"??")
    assert re.search(r"shop is broken: .*run: spd-lsp build-ngrams", run("ngrams", "show", "shop", status=1))


def test_choices_that_cannot_be_read_are_named_and_not_overwritten(run, repository, data):
    run("build-ngrams", repository)
    run("ngrams", "use", "shop", "--workspace", repository)
    record = data / "workspaces.msgpack"
    record.write_bytes(b"??")
    asked = f"{repository / 'shop.py'}:2:17"
    assert "expected the tables chosen for workspaces" in run("complete", asked)
    assert re.search(r"wrong +n-grams in use .*spd-lsp ngrams use", run("doctor", status=1))
    run("ngrams", "use", "shop", "--workspace", repository)
    assert record.with_name("workspaces.msgpack.bad").read_bytes() == b"??"
    assert "expected the tables" not in run("complete", asked)
