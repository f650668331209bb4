"""Each thing that is wrong is one finding that says what to do; what is right is right, and nothing is changed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner

from ngram_builders.registry.registry import Registry
from spd_lsp.cli import main
from spd_lsp.commands.diagnosis import check_model, check_tables, tuned_settings
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.completion.tuned_settings import write_tuned
from spd_lsp.models.checkpoint.hub import STARTER, locate
from spd_lsp.settings import Settings
from tests.ngram_builders.small_tables import writer

FOLDER = locate(STARTER)
TOKENS = ModelTokenizer(FOLDER)


@pytest.fixture
def registry(tmp_path):
    return Registry(tmp_path / "data")


@pytest.fixture
def findings(registry):
    """What the doctor says of the tables: subject -> state and text."""

    def findings():
        found = check_tables(Settings(data_dir=str(registry.folder)), TOKENS, FOLDER)
        return {finding.subject: (finding.state, finding.text) for finding in found}

    return findings


def install(registry, name, repo, **options):
    fingerprint = options.pop("fingerprint", TOKENS.fingerprint)
    return registry.install(name, writer(5, 7, fingerprint=fingerprint), roots=[repo], **options)


def test_a_fresh_installation_has_nothing_wrong(tmp_path):
    lines = CliRunner().invoke(main, ["--data-dir", str(tmp_path / "data"), "doctor"]).output.splitlines()
    assert all(line.startswith("ok ") for line in lines), lines
    assert {line.split()[1] for line in lines} >= {"spd-lsp", "torch", "pygls", "model", "settings", "data"}
    assert not (tmp_path / "data").exists()


def test_what_was_tuned_for_the_model_is_told(tmp_path):
    write_tuned(tmp_path, "mine", {"temperature": 0.8, "weights": [[0.1]]})
    write_tuned(tmp_path, "other", {"candidates": 40})
    settings = Settings(data_dir=str(tmp_path))
    assert tuned_settings(replace(settings, model="mine")).text == "temperature=0.8, n-gram order weights"
    assert tuned_settings(replace(settings, model="third")).text == "nothing for third"


def test_what_is_wrong_ends_the_command_with_its_number(registry, tmp_path):
    path = install(registry, "shop", tmp_path).path
    path.write_bytes(path.read_bytes()[:-64])
    result = CliRunner().invoke(main, ["--data-dir", str(registry.folder), "doctor"])
    assert re.search(r"error +n-grams shop .*run: spd-lsp ngrams rebuild", result.output)
    assert "1 problem found" in result.output
    assert result.exit_code == 1


def test_a_sound_table_is_read_whole(registry, tmp_path, findings):
    path = install(registry, "shop", tmp_path).path
    assert findings()["n-grams shop"] == ("ok", "3 tokens, 0.2 MiB, checksums match")
    data = bytearray(path.read_bytes())
    data[-64] ^= 1
    path.write_bytes(data)
    state, text = findings()["n-grams shop"]
    assert state == "error"
    assert re.search(r"damaged data .*; run: spd-lsp ngrams rebuild", text)


def test_an_old_format_is_named_with_the_command_that_ends_it(registry, tmp_path, findings):
    path = install(registry, "shop", tmp_path).path
    data = path.read_bytes()
    path.write_bytes(data[:7] + b"\1" + data[8:])
    state, text = findings()["n-grams shop"]
    assert state == "error"
    assert re.search(r"its format 1 is older than 2; run: spd-lsp ngrams rebuild$", text)


def test_a_table_of_another_tokenizer_is_rebuilt_by_one_command(registry, tmp_path, findings):
    install(registry, "shop", tmp_path, fingerprint="a1b2")
    install(registry, "team", tmp_path, fingerprint="a1b2", recipe={"imported": "team.ngt"})
    state, text = findings()["n-grams shop"]
    assert state == "error"
    assert re.search(
        r"tokenizer a1b2, and starter has another tokenizer; run: spd-lsp ngrams rebuild shop --model starter$",
        text,
    )
    assert "import one built with starter" in findings()["n-grams team"][1]


def test_a_table_for_another_model_is_nobody_s_fault(registry, tmp_path, findings):
    install(registry, "tiny", tmp_path, fingerprint="a1b2", recipe={"model": "/models/tiny"})
    state, text = findings()["n-grams tiny"]
    assert state == "ok"
    assert text == (
        "n-gram table tiny was built for tiny, and starter has another tokenizer; "
        f"run: spd-lsp build-ngrams {tmp_path} --model starter"
    )


@pytest.mark.parametrize("recipe", [{}, {"model": "/models/tiny"}])
def test_a_table_beside_one_that_serves_the_same_sources_needs_nothing(registry, tmp_path, findings, recipe):
    install(registry, "shop", tmp_path)
    install(registry, "inner", tmp_path / "inner", fingerprint="a1b2", recipe=recipe)
    state, text = findings()["n-grams inner"]
    assert (state, text) == ("ok", f"for {'tiny' if recipe else 'tokenizer a1b2'}; shop takes its place here")


def test_a_broken_import_is_imported_again(registry, tmp_path, findings):
    install(registry, "team", tmp_path, recipe={"imported": "team.ngt"}).path.unlink()
    assert findings()["n-grams team"][1].endswith(
        "no such file or directory; import it again: spd-lsp ngrams import FILE --domain team --replace"
    )


def test_an_unreadable_index_is_built_again_under_its_name(registry, tmp_path, findings):
    (install(registry, "shop", tmp_path).path.parent / "domain.msgpack").write_bytes(b"??")
    state, text = findings()["n-grams shop"]
    assert state == "error"
    assert text.endswith("run: spd-lsp build-ngrams REPO --domain shop")


def test_choices_that_cannot_be_followed_are_named(registry, tmp_path, findings):
    install(registry, "shop", tmp_path)
    registry.assign_workspace(tmp_path, [("shop", 0.5)])
    assert "n-grams in use" not in findings()
    (registry.folder / "shop" / "domain.msgpack").unlink()
    assert findings()["n-grams in use"] == (
        "error",
        "in use but missing: shop; to stop using them, run: spd-lsp ngrams prune",
    )
    (registry.folder / "workspaces.msgpack").write_bytes(b"??")
    state, text = findings()["n-grams in use"]
    assert state == "error"
    assert "choose again with: spd-lsp ngrams use" in text


def test_space_and_tables_without_repositories_are_told_but_not_wrong(registry, tmp_path, findings):
    repo = tmp_path / "repo"
    repo.mkdir()
    home = install(registry, "shop", repo).path.parent
    (home / "table-0123.ngt").write_bytes(b"x" * 2**20)
    repo.rmdir()
    found = findings()
    assert found["leftovers"] == ("ok", "1.0 MiB are not needed; to free them, run: spd-lsp ngrams prune")
    assert found["n-grams shop"][0] == "ok"
    assert f"its repository {repo} is gone, see spd-lsp ngrams prune --gone" in found["n-grams shop"][1]
    assert (home / "table-0123.ngt").exists()


def test_a_file_in_place_of_the_folder_is_named_once_with_what_to_do(registry, findings):
    registry.folder.write_text("a file")
    wrong = [text for state, text in findings().values() if state == "error"]
    assert any(
        "it is a file; make it a folder that you can read, or choose another with --data-dir" in t for t in wrong
    )


OVERRIDE = "-dac_override,-dac_read_search"  # what lets the first user read what nobody may


@pytest.fixture
def locked(tmp_path):
    """Make a folder unreadable for a while, and run a command that has to respect it."""
    unprivileged = []
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        unprivileged = ["setpriv", "--bounding-set", OVERRIDE, "--inh-caps", OVERRIDE]
    if os.name != "posix" or (unprivileged and not shutil.which("setpriv")):
        pytest.skip("permissions cannot be taken away here")

    def run(folder, *command):
        folder.chmod(0)
        try:
            return subprocess.run(
                [*unprivileged, sys.executable, "-m", "spd_lsp", *command],
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            folder.chmod(0o700)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("command", [["doctor"], ["ngrams", "list"], ["ngrams", "prune"]])
@pytest.mark.parametrize("unreadable", ["data", "data/ngrams", "data/ngrams/shop"])
def test_a_folder_that_cannot_be_read_is_named(locked, tmp_path, unreadable, command):
    install(Registry(tmp_path / "data" / "ngrams"), "shop", tmp_path)
    done = locked(tmp_path / unreadable, "--data-dir", str(tmp_path / "data" / "ngrams"), *command)
    assert "Traceback" not in done.stderr
    if command == ["doctor"]:
        assert re.search(r"^error +n-grams (shop|in use) .*cannot", done.stdout, re.MULTILINE)
        assert done.returncode == 1


def test_a_model_whose_folder_cannot_be_read_is_named(locked, tmp_path):
    (tmp_path / "model").mkdir()
    done = locked(tmp_path / "model", "doctor", "--model", str(tmp_path / "model"))
    assert re.search(r"^error +model +cannot read the model .*: Permission denied", done.stdout, re.MULTILINE)


def test_a_folder_that_cannot_be_is_named(tmp_path):
    data = str(tmp_path / ("x" * 300))
    result = CliRunner().invoke(main, ["--data-dir", data, "doctor"])
    assert re.search(r"error +data folder +cannot write to .*: File name too long", result.output)


def test_a_model_that_opens_and_fails_is_a_finding():
    class Failing:
        def complete(self, *args, **options):
            raise ValueError("max() of an empty sequence")

    found = check_model(Settings(), lambda settings: Failing())
    assert found.state == "error"
    assert found.text == "starter loads but cannot complete (ValueError: max() of an empty sequence)"
