"""`build-ngrams`: the output says what was done, would be done, or why not; a failure is one sentence."""

from __future__ import annotations

import re
from functools import partial

import pytest

from tests.planted import lines, private_key


@pytest.fixture
def run(run):
    return partial(run, "build-ngrams")


def test_a_build_reports_counts_costs_and_skipped_files(run, shop, data):
    counted, tokenized, skipped, table = run(shop).splitlines()
    pattern = r"shop: 2 files, \d+ tokens, \d+\.\d MiB, \d+\.\d s"
    assert re.fullmatch(pattern, counted)
    assert re.fullmatch(r"tokenized: \d+ tokens in \d+\.\d s \([\d,]+ per second\)", tokenized)
    assert skipped == "skipped: 1 ignored by .gitignore, 1 not source code, 1 secret"
    assert table.removeprefix("table: ").startswith(str(data))


def test_a_second_build_reports_that_nothing_has_changed(run, shop):
    first = run(shop).splitlines()
    again = run(shop).splitlines()
    assert again[1] == "nothing has changed since the last build"
    assert again[2:] == first[2:]
    (shop / "new.py").write_text("x = 1\n", encoding="utf-8")
    assert run(shop).splitlines()[1].startswith("tokenized: ")
    assert run(shop, "--fresh").splitlines()[1].startswith("tokenized: ")


def test_another_repositorys_table_is_replaced_only_if_asked_for(run, shop, tmp_path, registry):
    run(shop, "--name", "mine")
    bank = tmp_path / "bank"
    bank.mkdir()
    (bank / "bank.py").write_text("balance = 1\n", encoding="utf-8")
    refused = run(bank, "--name", "mine", status=1)
    assert f"the table mine is from {shop} and would be replaced; choose another name with --name" in refused
    assert registry.find("mine").roots == (shop,)
    run(bank, shop, "--name", "mine")  # one more repository
    run(shop, "--name", "mine")  # and one less
    run(bank, "--name", "mine", "--replace")
    assert registry.find("mine").roots == (bank,)


@pytest.mark.parametrize(
    ("name", "options", "explanation"),
    [
        ("shop.py", [], "shop.py: counted as python"),
        ("shop.go", ["--language", "python"], "shop.go: skipped: other language"),
        (".env", [], ".env: skipped: secret"),
        ("private.py", [], r"private.py: skipped: ignored by .gitignore \(.*shop.\.gitignore:2: private.py\)"),
    ],
)
def test_why_explains_a_file_in_one_line(run, shop, data, tmp_path, name, options, explanation):
    (tmp_path / "other").mkdir()
    assert re.search(explanation + r"\n$", run(tmp_path / "other", shop, "--why", shop / name, *options))
    assert not data.exists()


def test_lines_with_secrets_are_counted_and_never_printed(run, shop):
    (line, secret), key = lines()["GitHub"], private_key()
    (shop / "deploy.py").write_text(f"import os\n{line}\nx = 1\n{line}\nKEY = '''{key}'''\n", encoding="utf-8")
    (shop / "copy.py").write_bytes((shop / "deploy.py").read_bytes())
    masked = f"masked: {2 + key.count(chr(10)) + 1} lines that look like secrets"
    outputs = [run(shop), run(shop)]
    assert all(masked in output.splitlines() for output in outputs)
    assert not any(secret[:10] in text or key[40:60] in text for text in outputs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no/such/folder"], "no/such/folder does not exist; name the folder of a repository"),
        (
            ["shop.py"],
            "shop.py is a file, not a folder; name the folder of a repository, or give it with --corpus$",
        ),
        ([".", "--name", "../evil"], "invalid table name .*evil"),
        ([".", "--model", "no-such-model"], "there is no model .no-such-model."),
        ([".", "--language", "pyton"], "unknown language 'pyton'; did you mean 'python'"),
        ([".", "--why", "missing.py"], "no such file: missing.py"),
        ([".", "--why", "../elsewhere.py"], "elsewhere.py is not in .*shop"),
    ],
)
def test_an_invalid_command_says_what_is_wrong(run, shop, monkeypatch, arguments, message):
    monkeypatch.chdir(shop)
    assert re.search(message, run(*arguments, status=1))


def test_an_interrupt_prints_one_line_and_keeps_the_table(run, shop, data, monkeypatch):
    run(shop)
    (table,) = data.rglob("*.ngt")
    (shop / "new.py").write_text("x = 1\n", encoding="utf-8")

    def interrupted(self, texts):
        raise KeyboardInterrupt

    monkeypatch.setattr("spd_lsp.completion.tokenizer.ModelTokenizer.encode_batch", interrupted)
    output = run(shop, status=130)
    assert output == "interrupted: the table is unchanged; run the same command to continue\n"
    assert list(data.rglob("*.ngt")) == [table]


def test_a_harmless_failure_is_reported_as_a_note(run, shop, data):
    run(shop)
    (data / "shop" / "tokens.sqlite").write_bytes(b"damaged " * 2000)
    assert re.search(r"note: cannot use the cached tokens in .*started a new cache", run(shop))


def test_what_a_user_chose_to_count_is_recorded_and_counted_again(run, invoke, shop, registry):
    (shop / "vendor").mkdir()
    for name in ("vendor/a.py", "old.py", "test_shop.py"):
        (shop / name).write_text(f"name = {name!r}\n")
    assert "skipped: 2 excluded" in run(shop, "--include", "vendor/", "--exclude", "*.go", "--exclude", "test_*")
    assert (registry.find("shop").files, registry.find("shop").recipe["include"]) == (3, ["vendor/"])
    (shop / "vendor" / "b.py").write_text("y = 1\n")
    assert "4 files" in invoke("ngrams", "rebuild", "shop").output
    assert "is no pattern of .gitignore" in run(shop, "--exclude", "[", status=1)
