"""The `ngrams` commands: the output says what was done; a failure is one sentence."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import click
import pytest

from ngram_builders.registry.registry import FolderChoice
from spd_lsp.cli import main
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.models.hub import locate
from tests.ngram_builders.small_tables import writer

ROOT = Path(__file__).parents[2]
USING = (ROOT / "spd_lsp" / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def install(registry, shop):
    """Install a small table as if it had been built from the shop for the starter."""
    fingerprint = ModelTokenizer(locate("starter")).fingerprint

    def install(name, *, fingerprint=fingerprint, roots=(shop,), language="python", **options):
        write = writer(5, 7, 5, 7, language=language, fingerprint=fingerprint)
        options.setdefault("recipe", {"model": "starter"})
        return registry.install(name, [write], roots=roots, **options)

    return install


def test_list_and_remove(run, install):
    assert "no n-gram tables yet; run: spd-lsp build-ngrams REPO" in run("ngrams", "list")
    install("till")
    (line,) = run("ngrams", "list").splitlines()
    assert re.fullmatch(r"till +6 tokens +0\.\d MiB  \d{4}-\d\d-\d\d \d\d:\d\d  starter +/.*shop", line)
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
    registry.choose_folder(Path("/code/shop"), FolderChoice.EXCLUDED)
    registry.choose_folder(Path("/code/bank"), FolderChoice.INDEXED)
    assert "/code/shop is not indexed when an editor opens it: you excluded it" in run("ngrams", "list")
    assert "bank" not in run("ngrams", "list")


def test_json_output_has_the_same_facts(run, install, shop, data):
    table = install("till")
    run("ngrams", "use", "till=0.5", "--workspace", shop)
    run("ngrams", "use", "till=0.2", "--language", "python")
    listed = json.loads(run("ngrams", "list", "--json"))
    [shown] = listed.pop("tables")
    languages = {"python": {"till": 0.2}}
    assert listed == {"workspaces": {str(shop): {"till": 0.5}}, "languages": languages, "problem": None}
    assert (shown["size"], shown["tokens"]) == (table.size, table.tokens)
    assert (shown["roots"], shown["recipe"]["model"], shown["fault"]) == ([str(shop)], "starter", None)
    (data / "till" / "index.msgpack").write_bytes(b"??")
    (broken,) = json.loads(run("ngrams", "list", "--json"))["tables"]
    assert "cannot be read" in broken["fault"]
    assert "till                     broken: " in run("ngrams", "list")


def test_remove_removes_all_named_tables_or_none(run, install):
    install("a")
    install("b")
    assert "named 'c' (known: a, b)" in run("ngrams", "remove", "a", "c", status=1)
    assert run("ngrams", "remove", "a", "b", "a") == "removed a\nremoved b\n"


def test_export_and_import_move_a_table_in_one_file_and_say_how_to_use_it(run, install, shop, tmp_path):
    install("shop")
    file = tmp_path / "team.ngt"
    exported, output = run("ngrams", "export", "shop", file).splitlines()
    assert re.fullmatch(rf"exported shop to {file} \(0\.\d MiB\)", exported)
    assert output == "anyone who has it can read the code of 1 file"
    assert str(shop).encode() not in file.read_bytes()
    assert "team.ngt exists; choose another file" in run("ngrams", "export", "shop", file, status=1)
    run("ngrams", "export", "shop", file, "--replace")
    output = run("ngrams", "import", file)
    assert output.startswith("imported team: 1 file, 6 tokens\n")
    assert f"imported from {file}" in run("ngrams", "list")
    command = re.search(r"nothing is served by it; run: spd-lsp (.*)", output)[1]
    assert command == "ngrams use team --language python"
    assert "python files are also served by team (default weight)" in run(*shlex.split(command))
    assert "named team exists already" in run("ngrams", "import", file, status=1)
    run("ngrams", "import", file, "--replace")
    assert "python files are also served by team (default weight)" in run("ngrams", "list")


def test_an_imported_table_of_another_tokenizer_is_reported(run, install, tmp_path):
    install("shop", fingerprint="a1b2")
    run("ngrams", "export", "shop", tmp_path)
    file = tmp_path / "shop.ngt"
    output = run("ngrams", "import", file, "--name", "other")
    assert "starter cannot use it" in output


ngrams = main.resolve_command(click.Context(main), ["ngrams"])[1]


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
        (["ngrams", "remove", "nothing"], "nothing"),
        (["ngrams", "use", "nothing"], "nothing"),
        (["ngrams", "use", "shop=2"], "invalid 'shop=2': give NAME=WEIGHT with a weight above 0 and at most 1"),
        (
            ["ngrams", "use", "shop", "--language", "go", "--workspace", "."],
            "give --workspace or --language, not both",
        ),
        (["ngrams", "export", "nothing", "file"], "nothing"),
        (["ngrams", "import", "no/such/file.ngt"], "no such file.*; export it again"),
        (["ngrams", "rebuild", "nothing"], "nothing"),
    ],
)
def test_an_invalid_command_says_what_is_wrong(run, shop, monkeypatch, arguments, message):
    monkeypatch.chdir(shop)
    assert re.search(message, run(*arguments, status=1))


def test_unreadable_assignments_are_reported_until_one_chooses_again(run, shop, data):
    run("build-ngrams", shop)
    run("ngrams", "use", "shop", "--workspace", shop)
    record = data / "workspaces.msgpack"
    record.write_bytes(b"??")
    position = f"{shop / 'shop.py'}:2:17"
    assert "cannot read which n-gram tables you chose" in run("complete", position)
    assert re.search(r"error +n-grams in use .*spd-lsp ngrams use", run("doctor", status=1))
    run("ngrams", "use", "shop", "--workspace", shop)
    assert "cannot read which" not in run("complete", position)
