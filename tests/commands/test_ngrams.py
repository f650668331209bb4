"""The `ngrams` commands: the output says what was done; a failure is one sentence."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ngram_builders.registry.folder_choices import FolderChoice, write_folder_choice
from spd_lsp.commands.ngrams import ngrams
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.models.checkpoint.hub import built_in_tables, locate
from tests.conftest import STARTER
from tests.ngram_builders.small_tables import writer

ROOT = Path(__file__).parents[2]
USING = (ROOT / "spd_lsp" / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "shop.py").write_text("def sell(item):\n    return item.price\n" * 20, encoding="utf-8")
    (folder / ".gitignore").write_text("private.py\n", encoding="utf-8")
    (folder / "private.py").write_text("secret = 1\n", encoding="utf-8")
    (folder / ".env").write_text("KEY=1\n", encoding="utf-8")
    return folder


@pytest.fixture
def install(registry, repository):
    """Install a small table as if it had been built from the repository for the starter."""
    fingerprint = ModelTokenizer(locate("starter")).fingerprint

    def install(name, *, fingerprint=fingerprint, roots=(repository,), language="python", **options):
        write = writer(5, 7, 5, 7, language=language, fingerprint=fingerprint)
        options.setdefault("recipe", {"orders": [2, 3, 4, 5, 6], "model": "starter"})
        return registry.install(name, write, roots=roots, **options)

    return install


def test_list_and_show_and_remove(run, install):
    assert "no n-gram tables yet; run: spd-lsp build-ngrams REPO" in run("ngrams", "list")
    install("till")
    line, *built_in = run("ngrams", "list").splitlines()
    assert re.fullmatch(r"till +5 tokens +0\.\d MiB  \d{4}-\d\d-\d\d \d\d:\d\d  starter +/.*shop", line)
    assert len(built_in) == len(built_in_tables(STARTER))
    python = next(line for line in built_in if line.startswith("python"))
    assert re.match(r"python \(built in\) +[\d,]+ tokens +\d\.\d MiB .* serves python files", python)
    assert run("ngrams", "remove", "till") == "removed till\n"
    assert "no n-gram tables yet" in run("ngrams", "list")


def test_list_names_the_model_of_each_table(run, install):
    install("mine")
    install("other", fingerprint="a1b2", recipe={"model": "/models/Tiny-1B"})
    install("team", fingerprint="a1b2", recipe={"imported": "team.ngt"})
    lines = {line.split()[0]: line for line in run("ngrams", "list").splitlines()}
    assert re.search(r"\d\d:\d\d  starter  ", lines["mine"])
    assert re.search(r"\d\d:\d\d  Tiny-1B  ", lines["other"])
    assert re.search(r"\d\d:\d\d  tokenizer a1b2 imported from team\.ngt$", lines["team"])


def test_list_names_folders_that_the_user_excluded(run, registry):
    write_folder_choice(registry.folder, Path("/code/shop"), FolderChoice.EXCLUDED)
    write_folder_choice(registry.folder, Path("/code/bank"), FolderChoice.INDEXED)
    assert "/code/shop is not indexed when an editor opens it: you excluded it" in run("ngrams", "list")
    assert "bank" not in run("ngrams", "list")


def test_show_prints_all_metadata(run, install, repository, tmp_path):
    table = install("till")
    shown = dict(re.findall(r"^(.{10}) (.*)$", run("ngrams", "show", "till"), flags=re.MULTILINE))
    shown = {fact.strip(): value for fact, value in shown.items()}
    assert shown["sources"] == str(repository)
    assert shown["model"] == "starter"
    assert shown["tokenizer"] == ModelTokenizer(locate("starter")).fingerprint
    assert (shown["orders"], shown["min counts"]) == ("2, 3, 4, 5, 6", "1, 1, 1, 1, 1")
    assert re.fullmatch(rf"0\.\d MiB, {table.size / table.ngrams:.1f} bytes per n-gram", shown["size"])
    assert (shown["files"], shown["tokens"], shown["languages"], shown["weight"]) == ("1", "5", "python", "0.7")
    assert shown["used by"] == "files in its sources (0.7), unless their workspace has tables of its own"
    assert shown["table"] == str(table.path)
    run("ngrams", "use", "till=0.5", "--workspace", tmp_path)
    run("ngrams", "use", "till=0.2", "--language", "python")
    assert shown["cache"].startswith("0.0 MiB of token ids")
    output = f"used by    files in {tmp_path} (0.5), python files (0.2), files in its sources (0.7)"
    assert output in run("ngrams", "show", "till")


def test_json_output_has_the_same_facts(run, install, repository, data):
    table = install("till")
    run("ngrams", "use", "till=0.5", "--workspace", repository)
    run("ngrams", "use", "till=0.2", "--language", "python")
    listed = json.loads(run("ngrams", "list", "--json"))
    shown = json.loads(run("ngrams", "show", "till", "--json"))
    assert listed == {
        "tables": [shown],
        "workspaces": {str(repository): {"till": 0.5}},
        "languages": {"python": {"till": 0.2}},
        "dependencies": {},
        "additions": {},
        "problem": None,
    }
    assert shown["used_by"]["workspaces"] == {str(repository): 0.5}
    assert (shown["size"], shown["ngrams"], shown["orders"]) == (table.size, table.ngrams, [2, 3, 4, 5, 6])
    assert (shown["roots"], shown["recipe"]["model"], shown["fault"]) == ([str(repository)], "starter", None)
    (data / "till" / "index.msgpack").write_bytes(b"??")
    (broken,) = json.loads(run("ngrams", "list", "--json"))["tables"]
    assert "cannot be read" in broken["fault"]
    assert "is broken" in run("ngrams", "show", "till", "--json", status=1)


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names are of any bytes on Linux")
def test_a_repository_with_any_name_is_listed(install, data, tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    install("cafe", roots=(folder,))
    command = [sys.executable, "-m", "spd_lsp", "--data-dir", str(data), "ngrams", "list"]
    strict = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    printed = subprocess.run(command, env=strict, capture_output=True, check=True, cwd=ROOT).stdout
    assert rb"caf\udce9" in printed
    listed = subprocess.run([*command, "--json"], env=strict, capture_output=True, check=True, cwd=ROOT)
    assert json.loads(listed.stdout.decode("ascii"))["tables"][0]["roots"] == [str(folder)]


def test_use_chooses_tables_for_a_workspace_or_a_language(run, install, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    install("shop")
    install("team", roots=())
    assert (
        run("ngrams", "use", "shop=0.5", "team") == f"{tmp_path} is served by shop (0.5), team (learnt weight)\n"
    )
    output = run("ngrams", "use", "team", "--language", "python")
    assert output == "python files are also served by team (learnt weight)\n"
    lines = run("ngrams", "list").splitlines()
    assert lines[-2:] == [f"{tmp_path} is served by shop (0.5), team (learnt weight)", output.strip()]
    assert "is served by the tables built from it" in run("ngrams", "unuse", "--workspace", tmp_path)
    assert (
        run("ngrams", "unuse", "--language", "python")
        == "python files are served by the tables built from their folders\n"
    )
    assert " by " not in run("ngrams", "list")


def test_use_reports_why_a_table_cannot_be_used(run, install, data):
    install("gopher", language="go")
    output = run("ngrams", "use", "gopher", "--language", "python")
    assert "gopher serves no python files: it was built from go" in output
    (data / "gopher" / "index.msgpack").write_bytes(b"??")
    assert "gopher serves nothing until it is repaired" in run("ngrams", "use", "gopher=0.5", "--language", "go")


def test_remove_removes_all_named_tables_or_none(run, install):
    install("a")
    install("b")
    assert "named 'c' (known: a, b)" in run("ngrams", "remove", "a", "c", status=1)
    assert run("ngrams", "remove", "a", "b", "a") == "removed a\nremoved b\n"


def test_export_and_import_move_a_table_in_one_file_and_say_how_to_use_it(run, install, repository, tmp_path):
    install("shop")
    file = tmp_path / "team.ngt"
    exported, output = run("ngrams", "export", "shop", file).splitlines()
    assert re.fullmatch(rf"exported shop to {file} \(0\.\d MiB\)", exported)
    assert output == "anyone who has it can reconstruct most of the code of 1 file"
    assert str(repository).encode() not in file.read_bytes()
    assert "team.ngt exists; choose another file" in run("ngrams", "export", "shop", file, status=1)
    run("ngrams", "export", "shop", file, "--replace")
    output = run("ngrams", "import", file, "--model", "starter")
    assert f"imported from {file}" in output
    assert re.search(r"^built +\d{4}-.*, imported \d{4}-", output, flags=re.MULTILINE)
    command = re.search(r"nothing; run: spd-lsp (.*)", output)[1]
    assert command == "ngrams use team --language python"
    assert "python files are also served by team (learnt weight)" in run(*shlex.split(command))
    assert "named team exists already" in run("ngrams", "import", file, status=1)
    run("ngrams", "import", file, "--replace")
    assert "python files (learnt weight)" in run("ngrams", "show", "team")


def test_several_tables_are_exported_to_a_folder(run, install, tmp_path):
    install("shop")
    install("till")
    assert "a.ngt is not a folder, and several tables" in run(
        "ngrams", "export", "shop", "till", tmp_path / "a.ngt", status=1
    )
    assert run("ngrams", "export", "shop", "till", tmp_path).count("exported") == 2
    assert {file.name for file in tmp_path.glob("*.ngt")} == {"shop.ngt", "till.ngt"}


def test_an_imported_table_of_another_tokenizer_is_refused_or_reported(run, install, tmp_path):
    install("shop", fingerprint="a1b2")
    run("ngrams", "export", "shop", tmp_path)
    file = tmp_path / "shop.ngt"
    refused = run("ngrams", "import", file, "--name", "other", "--model", "starter", status=1)
    assert re.search(r"its tokenizer is a1b2, the model's is \w+", refused)
    output = run("ngrams", "import", file, "--name", "other")
    assert "starter cannot use it" in output


def test_prune_reports_what_it_removed_and_freed(run, install, data, repository):
    assert run("ngrams", "prune") == "nothing to prune\n"
    install("shop")
    (data / "shop" / "table-0123.ngt").write_bytes(b"x" * 2**20)
    planned = run("ngrams", "prune", "--dry-run")
    assert re.search(r"would be deleted +1\.0 MiB  shop/table-0123\.ngt: a table that no index names", planned)
    assert planned.endswith("would free 1.0 MiB\n")
    output = run("ngrams", "prune")
    assert re.search(r"^deleted +1\.0 MiB  shop/table-0123\.ngt", output, flags=re.MULTILINE)
    assert output.endswith("freed 1.0 MiB\n")
    (repository / "shop.py").unlink()
    for file in repository.iterdir():
        file.unlink()
    repository.rmdir()
    assert f"{repository} (gone)" in run("ngrams", "list")
    assert run("ngrams", "prune") == "nothing to prune\n"
    assert f"shop: its repository is gone: {repository}" in run("ngrams", "prune", "--gone")


def test_a_file_in_place_of_the_data_folder_is_reported(run, data):
    data.write_text("a file where the folder should be")
    output = run("ngrams", "list", status=1)
    assert re.search(rf"cannot open the folder of n-gram tables {data}: it is a file; .*--data-dir", output)
    assert "no n-gram tables yet" not in output
    assert json.loads(run("ngrams", "list", "--json", status=1).splitlines()[0])["problem"]


@pytest.mark.parametrize("name", sorted(ngrams.commands))
def test_every_command_has_a_working_example_and_is_in_the_readme(name):
    command = ngrams.commands[name]
    example = shlex.split(f"{command.help}\n{command.epilog or ''}".split("Example: ")[1])
    assert example[:3] == ["spd-lsp", "ngrams", name]
    command.make_parser(command.context_class(command)).parse_args(example[3:])
    rows = [line for line in USING.splitlines() if line.startswith("| `spd-lsp ngrams")]
    assert f"`{name}`" in " ".join(rows).replace("spd-lsp ngrams ", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ngrams", "show", "nothing"], "nothing"),
        (["ngrams", "remove", "nothing"], "nothing"),
        (["ngrams", "use", "nothing"], "nothing"),
        (["ngrams", "use", "shop=2"], "invalid 'shop=2': give NAME=WEIGHT with a weight above 0 and at most 1"),
        (
            ["ngrams", "use", "--language", "go", "--workspace", "."],
            "give --workspace or --language, not both",
        ),
        (["ngrams", "export", "nothing", "file"], "nothing"),
        (["ngrams", "import", "no/such/file.ngt"], "no such file.*; export it again"),
        (["ngrams", "rebuild", "nothing"], "nothing"),
        (["build-ngrams", "no/such/folder"], "no/such/folder"),
        (["build-ngrams", ".", "--orders", "1-9"], "--orders is a range within 2-6, .*not '1-9'"),
        (["build-ngrams", ".", "--name", "../evil"], "evil"),
        (["build-ngrams", ".", "--model", "no-such-model"], "there is no model 'no-such-model'"),
    ],
)
def test_an_invalid_command_says_what_is_wrong(run, repository, monkeypatch, arguments, message):
    monkeypatch.chdir(repository)
    assert re.search(message, run(*arguments, status=1))


def test_unreadable_assignments_are_reported_and_not_overwritten(run, repository, data):
    run("build-ngrams", repository)
    run("ngrams", "use", "shop", "--workspace", repository)
    record = data / "workspaces.msgpack"
    record.write_bytes(b"??")
    position = f"{repository / 'shop.py'}:2:17"
    assert "cannot read which n-gram tables you chose" in run("complete", position)
    assert re.search(r"error +n-grams in use .*spd-lsp ngrams use", run("doctor", status=1))
    run("ngrams", "use", "shop", "--workspace", repository)
    assert record.with_name("workspaces.msgpack.bad").read_bytes() == b"??"
    assert "cannot read which" not in run("complete", position)


def test_a_team_pushes_and_pulls_tables(run, install, tmp_path, registry):
    team = tmp_path / "team"
    install("shop")
    install("till")
    assert run("ngrams", "pull") == "no table was pulled before; give an ADDRESS\n"
    assert "there is no folder" in run("ngrams", "pull", team, status=1)
    output = run("ngrams", "push", "shop", "till", team)
    assert re.search(rf"^pushed shop \(0\.\d MiB\): {team}$", output, flags=re.MULTILINE)
    assert "anyone who has it can reconstruct most of the code of 1 file" in output
    assert run("ngrams", "push", "shop", team) == f"shop is there already: {team}\n"
    run("ngrams", "remove", "shop")
    output = run("ngrams", "pull", team, status=1)
    pulled = "pulled shop: 5 tokens from shop; to use it here: spd-lsp ngrams use shop --add"
    assert pulled in output
    assert "till was not pulled: an n-gram table named till exists already" in output
    assert "1 of 2 tables could not be pulled" in output
    assert run("ngrams", "pull") == "shop is up to date\n"
    assert f"imported from {team}: shop" in run("ngrams", "list")
    assert run("ngrams", "pull", team, "till", "--replace").startswith("pulled till: 5 tokens")
