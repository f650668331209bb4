"""`build-ngrams`: the output says what was done, would be done, or why not; a failure is one sentence."""

from __future__ import annotations

import os
import re
import sys
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from ngram_builders.build import BuildSummary
from ngram_builders.registry.registry import Registry
from spd_lsp.cli import main
from spd_lsp.commands.build_ngrams import describe_build
from tests.ngram_builders.small_tables import writer
from tests.planted import lines, private_key


@pytest.fixture
def run(run):
    return partial(run, "build-ngrams")


@pytest.fixture
def shop(tmp_path):
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "shop.py").write_text("def sell(item):\n    return item.price\n" * 20, encoding="utf-8")
    (folder / "run.sh").write_text("python shop.py\n", encoding="utf-8")
    (folder / ".gitignore").write_text("# mine\nprivate.py\n", encoding="utf-8")
    (folder / "private.py").write_text("secret = 1\n", encoding="utf-8")
    (folder / ".env").write_text("KEY=1\n", encoding="utf-8")
    return folder


def test_a_build_reports_counts_costs_and_skipped_files(run, shop, data):
    counted, tokenized, skipped, table = run(shop).splitlines()
    pattern = r"shop: 2 files, \d+ tokens, \d+ n-grams, \d+\.\d MiB, \d+\.\d s"
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
    bank.rename(tmp_path / "moved")
    run(tmp_path / "moved", "--name", "mine")
    assert registry.find("mine").roots == (tmp_path / "moved",)


def test_a_dry_run_reports_what_would_be_counted_and_writes_nothing(run, shop, data):
    output, skipped = run(shop, "--dry-run").splitlines()
    assert output == "would count 2 files, 0.8 kB: 1 python (0.8 kB), 1 shellscript (0.0 kB)"
    assert skipped == "skipped: 1 ignored by .gitignore, 1 not source code, 1 secret"
    assert run(shop, "--dry-run", "--language", "python").startswith("would count 1 file, 0.8 kB: 1 python")
    assert not data.exists()


@pytest.mark.parametrize(
    ("name", "options", "explanation"),
    [
        ("shop.py", [], "shop.py: counted as python"),
        ("run.sh", ["--language", "python"], "run.sh: skipped: other language"),
        (".env", [], ".env: skipped: secret"),
        ("private.py", [], r"private.py: skipped: ignored by .gitignore \(.*shop.\.gitignore:2: private.py\)"),
    ],
)
def test_why_explains_a_file_in_one_line(run, shop, data, tmp_path, name, options, explanation):
    (tmp_path / "other").mkdir()
    assert re.search(explanation + r"\n$", run(tmp_path / "other", shop, "--why", shop / name, *options))
    assert not data.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="has no such names")
def test_a_name_with_a_line_end_stays_on_its_line(run, shop):
    for name in ("new\nline.py", "new\r\tline.py", "copy\n.py"):
        (shop / name).write_text("x = 1\n" * 3, encoding="utf-8")
    (shop / "new\r\tline.py").write_text("y = 1\n" * 3, encoding="utf-8")
    assert run(shop, "--why", shop / "new\nline.py").count("\n") == 1
    assert run(shop, "--why", shop / "new\nline.py").endswith(
        f"new\\nline.py: skipped: duplicate (of {shop.resolve()}/copy\\n.py)\n"
    )
    assert run(shop, "--why", shop / "new\r\tline.py").endswith("new\\r\\tline.py: counted as python\n")


def test_lines_with_secrets_are_described_by_number_and_kind_and_never_printed(run, shop):
    (line, secret), key = lines()["GitHub"], private_key()
    (shop / "deploy.py").write_text(f"import os\n{line}\nx = 1\n{line}\nKEY = '''{key}'''\n", encoding="utf-8")
    (shop / "copy.py").write_bytes((shop / "deploy.py").read_bytes())
    masked = f"masked: {2 + key.count(chr(10)) + 1} lines that look like secrets"
    outputs = [run(shop, "--dry-run"), run(shop), run(shop)]
    assert all(masked in output.splitlines() for output in outputs)
    outputs.append(run(shop, "--why", shop / "copy.py"))
    described = f"(GitHub token: 2; GitHub token: 4; private key: 5-{5 + key.count(chr(10))})"
    assert outputs[-1].endswith(f"copy.py: counted as python, except lines that look like secrets {described}\n")
    assert "skipped: duplicate (of" in run(shop, "--why", shop / "deploy.py")
    assert not any(secret[:10] in text or key[40:60] in text for text in outputs)


@pytest.mark.parametrize("twin", ["x = 1\r\ny = 2\r\n", "x = 1\ny = 2\n", "\ufeffx = 1\ry = 2\r"])
def test_build_dry_run_and_why_agree_on_duplicates(run, tmp_path, twin):
    folder = tmp_path / "twins"
    folder.mkdir()
    (folder / "first.py").write_bytes(b"x = 1\ny = 2\n")
    (folder / "second.py").write_bytes(twin.encode())
    (folder / "third.py").write_bytes(b"x = 1\ny = 3\n")
    assert "would count 2 files" in (output := run(folder, "--dry-run"))
    assert "skipped: 1 duplicate" in output
    assert run(folder, "--why", folder / "first.py").endswith("first.py: counted as python\n")
    assert run(folder, "--why", folder / "third.py").endswith("third.py: counted as python\n")
    assert re.search(
        r"second\.py: skipped: duplicate \(of .*first\.py\)$", run(folder, "--why", folder / "second.py")
    )
    assert "2 files" in (output := run(folder))
    assert "skipped: 1 duplicate" in output


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_names_that_are_not_utf8_are_counted_and_printed(run, shop):
    name = shop / os.fsdecode(b"caf\xe9.py")
    try:
        name.write_text("x = 1\n")
    except OSError:
        pytest.skip("this file system refuses such names")
    assert "shop: 3 files" in run(shop)
    assert run(shop, "--why", name).endswith("caf\ufffd.py: counted as python\n")
    (shop / os.fsdecode(b"\xe9")).mkdir()
    assert "no source code in" in run(shop / os.fsdecode(b"\xe9"), status=1)


def test_several_folders_make_one_table_with_the_given_orders_and_counts(run, shop, tmp_path):
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a.py").write_text("x = 1\n" * 3, encoding="utf-8")
    output = run(shop, tmp_path / "plain", "--name", "both", "--orders", "2-3", "--min-count", "2")
    assert output.startswith("both: 3 files")
    from ngram_builders.registry.registry import Registry
    from ngram_builders.table.reader import Table

    table = Registry(tmp_path / "data").find("both")
    assert Table.open(table.path).summary.min_count == (2, 2)
    assert table.recipe == {"orders": [2, 3], "min_count": [2, 2], "language": None, "model": "starter"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no/such/folder"], "no/such/folder does not exist; name the folder of a repository"),
        (["shop.py"], "shop.py is a file, not a folder; name the folder of a .*, or add --engine datatrove"),
        ([".", "--orders", "1-9"], "--orders is a range within 2-6, .*not '1-9'"),
        ([".", "--name", "../evil"], "invalid table name .*evil"),
        ([".", "--model", "no-such-model"], "there is no model .no-such-model."),
        ([".", "--language", "pyton"], "unknown language 'pyton'; choose one of .*python"),
        ([".", "--workers", "2"], "--workers works with --engine datatrove only"),
        ([".", "--memory", "many"], "--memory is a size such as 500M or 2G, not 'many'"),
        ([".", "--memory", "10M"], "at least 450 MB of memory, not 10; give more with --memory"),
        ([".", "--engine", "datatrove", "--memory", "10M"], "at least 450 MB of memory, not 10"),
        ([".", "--engine", "datatrove", "--slurm", "qos=low"], "--slurm works with --executor slurm only"),
        (
            [".", "--engine", "datatrove", "--executor", "slurm", "--slurm", "low"],
            "--slurm is an option of sbatch such as partition=cpu, not 'low'",
        ),
        ([".", "--engine", "datatrove", "--min-files", "2"], "--min-files works with --engine local only"),
        ([".", "--why", "missing.py"], "no such file: missing.py"),
        ([".", "--why", "../elsewhere.py"], "elsewhere.py is not in .*shop"),
    ],
)
def test_an_invalid_command_says_what_is_wrong(run, shop, monkeypatch, arguments, message):
    monkeypatch.chdir(shop)
    assert re.search(message, run(*arguments, status=1))


def test_without_datatrove_its_engine_says_what_to_install(run, shop, monkeypatch):
    for module in ["datatrove", *(name for name in sys.modules if name.startswith("datatrove."))]:
        monkeypatch.setitem(sys.modules, module, None)
    for module in ("build", "executors", "slurm"):
        monkeypatch.delitem(sys.modules, f"ngram_builders.distributed.{module}", raising=False)
    output = run(shop, "--engine", "datatrove", status=1)
    assert re.search(r"needs the package datatrove.*; run: .* install 'spd-lsp\[distributed\]'", output)


@pytest.mark.slow
def test_two_workers_make_the_same_table(run, shop, data, tmp_path):
    pytest.importorskip("datatrove", reason="needs the extra `distributed`")
    run(shop, "--name", "here")
    where = ("--engine", "datatrove", "--workers", "2", "--shared-folder", tmp_path / "w")
    run(shop, "--name", "there", *where)
    here, there = (next((data / name).glob("*.ngt")).read_bytes() for name in ("here", "there"))
    assert here == there
    assert not list((tmp_path / "w").iterdir()), "the scratch folder is empty"


@pytest.mark.slow
def test_a_table_counted_in_tasks_is_rebuilt_in_tasks(run, shop, data, monkeypatch):
    pytest.importorskip("datatrove", reason="needs the extra `distributed`")
    row = '{"text": "x = 1\\n", "path": "a.py"}\n'
    (shop / "rows.jsonl").write_text(row, encoding="utf-8")
    monkeypatch.chdir(shop)
    run(".", "rows.jsonl", "--name", "shop", "--engine", "datatrove", "--workers", "1")
    (shop / "rows.jsonl").write_text(row + row.replace("1", "2"), encoding="utf-8")
    again = CliRunner().invoke(main, ["--data-dir", str(data), "ngrams", "rebuild", "shop"])
    assert again.exit_code == 0, again.output
    table = Registry(data).find("shop")
    assert (table.files, table.recipe["engine"]) == (4, "datatrove")


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


@pytest.mark.parametrize(
    ("perplexity", "told"),
    [
        ({"alone": 60.5}, "60.5"),
        (
            {"alone": 60.5, "python only": 105.0, "with python": 51.2},
            "105.0 -> 51.2, so this table helps completions here",
        ),
        (
            {"alone": 900.0, "python only": 105.0, "with python": 107.3},
            "105.0 -> 107.3, so it needs more code to help",
        ),
    ],
)
def test_a_build_tells_whether_the_table_helps(perplexity, told):
    facts = {"name": "d", "files": 1, "tokens": 1, "ngrams": 0, "bytes": 1, "seconds": 1.0, "skipped": {}}
    output = describe_build(BuildSummary(**facts, path=Path("t"), perplexity=perplexity))
    assert f"perplexity of new code (lower is better): {told}" in output.splitlines()


@pytest.mark.parametrize(
    "arguments", [["s3://bucket/corpus"], [".", "--engine", "datatrove", "--shared-folder", "gs://bucket/x"]]
)
def test_an_address_is_refused_where_a_folder_is_expected(run, arguments, shop, monkeypatch):
    monkeypatch.chdir(shop)
    assert "is an address, and a folder or file is expected" in run(*arguments, status=1)
    assert not list(shop.glob("*:*"))


@pytest.mark.parametrize("name", ["python", "Go"])
def test_names_of_built_in_tables_are_refused(run, invoke, shop, registry, tmp_path, name):
    refused = run(shop, "--name", name, status=1)
    assert f"built-in tables are named after languages; choose another name, such as --name {name}-code" in refused
    run(shop)
    invoke("ngrams", "export", "shop", tmp_path / f"{name}.ngt")
    assert "such as --name" in invoke("ngrams", "import", tmp_path / f"{name}.ngt", status=1).output
    folder = shop.rename(tmp_path / name)
    assert f"{name}-code: 2 files" in run(folder)  # named after the folder
    assert "nothing has changed" in run(folder)
    assert registry.names() == [f"{name}-code", "shop"]


def test_a_table_that_has_such_a_name_already_is_built_again(run, shop, registry, tmp_path):
    registry.install("python", writer(5), roots=[folder := shop.rename(tmp_path / "python")])
    assert "python: 2 files" in run(folder)
    assert "nothing has changed" in run(folder, "--name", "python")


def test_skipped_files_are_listed_with_their_reasons_and_nothing_is_built(run, shop, data, monkeypatch):
    (shop / "copy.py").write_bytes((shop / "shop.py").read_bytes())
    (shop / "deps" / "tcl").mkdir(parents=True)
    for name in ("deps/tcl/a.c", "deps/tcl/license.terms", "odd\n\tname.md"):
        (shop / name).write_text("x\n")
    monkeypatch.chdir(shop)
    listed = run(".", "--list-skipped").splitlines()
    assert listed == [
        ".env\tsecret",
        ".gitignore\tnot source code",
        "deps/tcl/\tvendored",
        "odd\\n\\tname.md\tnot source code",
        "private.py\tignored by .gitignore",
        "shop.py\tduplicate",
    ]
    assert run("--list-skipped", ".").splitlines() == listed
    assert run(".", "--list-skipped", "ignored").splitlines() == listed[4:5]
    reasons = "duplicate, ignored by .gitignore, not source code, secret"
    nothing = f"nothing is skipped as 'vendored'; reasons here: {reasons}\n"
    assert run(".", "--list-skipped", "vendored", "--include", "deps/") == nothing
    assert not data.exists()


def test_what_a_user_chose_to_count_is_recorded_and_counted_again(run, invoke, shop, registry):
    (shop / "vendor").mkdir()
    for name in ("vendor/a.py", "old.py", "test_shop.py"):
        (shop / name).write_text(f"name = {name!r}\n")
    assert "skipped: 2 excluded" in run(shop, "--include", "vendor/", "--exclude", "*.sh", "--exclude", "test_*")
    assert (registry.find("shop").files, registry.find("shop").recipe["include"]) == (3, ["vendor/"])
    (shop / "vendor" / "b.py").write_text("y = 1\n")
    assert "4 files" in invoke("ngrams", "rebuild", "shop").output
    options = "options    --include vendor/ --exclude '*.sh' --exclude 'test_*'\n"
    assert options in invoke("ngrams", "show", "shop").output
    assert "is no pattern of .gitignore" in run(shop, "--exclude", "[", status=1)
