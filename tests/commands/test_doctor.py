"""`doctor` reports each problem once with its remedy, reports nothing else as one, and changes nothing."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from spd_lsp.cli import main
from spd_lsp.commands.doctor import check_model, check_tables
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.models.hub import STARTER, locate
from spd_lsp.settings import Settings
from tests.ngram_builders.small_tables import writer

TOKENS = ModelTokenizer(locate(STARTER))


@pytest.fixture
def findings(registry):
    """Check the tables and return the state and text by subject."""

    def findings():
        checks = check_tables(Settings(data_dir=str(registry.folder)), TOKENS.fingerprint)
        return {one.subject: ("error" if one.is_error else "ok", one.text) for one in checks}

    return findings


def install(registry, name, repo, **options):
    fingerprint = options.pop("fingerprint", TOKENS.fingerprint)
    return registry.install(name, [writer(5, 7, fingerprint=fingerprint)], roots=[repo], **options)


def test_a_fresh_installation_has_no_problems(tmp_path):
    lines = CliRunner().invoke(main, ["--data-dir", str(tmp_path / "data"), "doctor"]).output.splitlines()
    assert all(line.startswith("ok ") for line in lines), lines
    assert [line.split()[1] for line in lines] == [
        "configuration",
        "data-dir",
        "spd-lsp",
        "packages",
        "model",
        "fill",
        "data",
    ]
    assert not (tmp_path / "data").exists()


def test_the_exit_status_is_the_number_of_problems(registry, tmp_path):
    path = install(registry, "shop", tmp_path).path
    path.write_bytes(path.read_bytes()[:-64])
    result = CliRunner().invoke(main, ["--data-dir", str(registry.folder), "doctor"])
    assert re.search(r"error +n-grams shop .*run: spd-lsp ngrams rebuild", result.output)
    assert "1 problem found" in result.output
    assert result.exit_code == 1


def test_a_valid_table_is_read_whole(registry, tmp_path, findings):
    path = install(registry, "shop", tmp_path).path
    assert findings()["n-grams shop"] == ("ok", "4 tokens, 0.0 MiB, checksums match")
    data = bytearray(path.read_bytes())
    data[data.rindex((7).to_bytes(4, "little"))] = 8  # a token, which no look at the numbers alone reveals
    path.write_bytes(data)
    state, text = findings()["n-grams shop"]
    assert state == "error"
    assert re.search(r"damaged data .*; run: spd-lsp ngrams rebuild", text)


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


def test_a_table_for_another_model_is_not_a_problem(registry, tmp_path, findings):
    install(registry, "tiny", tmp_path, fingerprint="a1b2", recipe={"model": "/models/tiny"})
    state, text = findings()["n-grams tiny"]
    assert state == "ok"
    assert text == (
        "n-gram table tiny was built for tiny, and starter has another tokenizer; "
        f"run: spd-lsp build-ngrams {tmp_path} --model starter"
    )


def test_assignments_that_have_no_effect_are_reported(registry, tmp_path, findings):
    install(registry, "shop", tmp_path)
    registry.assign_workspace(tmp_path, [("shop", 0.5)])
    assert "n-grams in use" not in findings()
    (registry.folder / "shop" / "index.msgpack").unlink()
    assert findings()["n-grams in use"] == (
        "error",
        "in use but missing: shop; to stop using them, run: spd-lsp ngrams unuse",
    )
    (registry.folder / "workspaces.msgpack").write_bytes(b"??")
    state, text = findings()["n-grams in use"]
    assert state == "error"
    assert "choose again with: spd-lsp ngrams use" in text


def test_a_model_that_fails_after_opening_is_a_problem(monkeypatch):
    class Failing:
        def complete(self, *args, **options):
            raise ValueError("max() of an empty sequence")

    monkeypatch.setattr("spd_lsp.commands.doctor.load_completer", lambda settings, report: Failing())
    finding = check_model(Settings())
    assert finding.is_error
    assert finding.text == "starter loads but cannot complete (ValueError: max() of an empty sequence)"
