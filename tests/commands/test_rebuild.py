"""`ngrams rebuild` rebuilds tables with their original options and reports why others were not."""

from __future__ import annotations

import re

import pytest

from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.models.hub import STARTER, locate
from tests.ngram_builders.small_tables import writer

FINGERPRINT = ModelTokenizer(locate(STARTER)).fingerprint


def install_foreign(registry, shop, name="shop", **options):
    """Install a table of another tokenizer."""
    return registry.install(name, [writer(5, 7, fingerprint="a1b2")], roots=[shop], **options)


def test_without_names_all_tables_of_repositories_are_rebuilt(registry, run, shop):
    assert run("ngrams", "rebuild").startswith("no table was built from a repository")
    run("build-ngrams", shop, "--name", "sound")
    install_foreign(registry, shop)
    registry.install("team", [writer(5, fingerprint="a1b2")], recipe={"imported": "team.ngt"})
    sound = registry.find("sound")
    output = run("ngrams", "rebuild")
    assert re.search(r"^shop: 2 files, ", output, flags=re.MULTILINE)
    assert "team" not in output
    assert registry.find("sound").path == sound.path
    rebuilt = registry.find("shop")
    assert (rebuilt.fingerprint, rebuilt.roots, rebuilt.tokens) == (FINGERPRINT, sound.roots, sound.tokens)


def test_tables_of_other_models_are_kept_next_to_one_new_table(registry, run, shop):
    for name, model in (("shop", "/models/one"), ("shop-two", "/models/two")):
        install_foreign(registry, shop, name=name, recipe={"model": model})
    for _ in range(2):
        run("ngrams", "rebuild", "--model", "starter")
        assert {table.name: table.fingerprint for table in registry.tables()} == {
            "shop": "a1b2",
            "shop-two": "a1b2",
            "shop-starter": FINGERPRINT,
        }
    run("ngrams", "rebuild", "shop-two", "--model", "starter")
    assert registry.find("shop-two").fingerprint == FINGERPRINT


def test_a_table_is_rebuilt_with_its_original_options(registry, run, shop):
    run("build-ngrams", shop, "--language", "go")
    before = registry.find("shop")
    before.path.unlink()
    run("ngrams", "use", "shop=0.4", "--workspace", shop)
    assert registry.find("shop").fault is not None
    run("ngrams", "rebuild")
    after = registry.find("shop")
    assert (after.languages, after.recipe) == (("go",), before.recipe)
    assert after.path == before.path
    assert f"{shop} is served by shop (0.4)" in run("ngrams", "list")


@pytest.mark.parametrize("harm", ["old", "cut", "damaged"])
def test_a_broken_table_is_rebuilt_byte_for_byte(registry, run, shop, harm):
    run("build-ngrams", shop)
    path = registry.find("shop").path
    data = path.read_bytes()
    path.write_bytes(
        {
            "old": data[:7] + b"\1" + data[8:],
            "cut": data[:-64],
            "damaged": data[:-64] + bytes([data[-64] ^ 1]) + data[-63:],
        }[harm]
    )
    run("ngrams", "rebuild", *(["shop"] if harm == "damaged" else []))
    assert registry.find("shop").path.read_bytes() == data


def test_a_table_that_cannot_be_rebuilt_is_reported_and_the_rest_are_rebuilt(registry, run, shop, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    install_foreign(registry, gone, "a-gone")
    gone.rmdir()
    registry.install("b-import", [writer(5, fingerprint="a1b2")], recipe={"imported": "team.ngt"})
    install_foreign(registry, shop)
    output = run("ngrams", "rebuild", "a-gone", "b-import", "shop", status=1)
    assert re.search(r"a-gone was not rebuilt: .*gone does not exist; name the folder of a repository", output)
    assert "b-import was not rebuilt: it was not built from repositories; build or import it again" in output
    assert re.search(r"^shop: 2 files", output, flags=re.MULTILINE)
    assert "2 of 3 tables could not be rebuilt, see above" in output
    assert registry.find("shop").fingerprint == FINGERPRINT
    assert registry.find("a-gone").fingerprint == "a1b2"


def test_doctor_names_this_command(registry, run, shop):
    install_foreign(registry, shop)
    command = re.search(r"run: spd-lsp (ngrams rebuild .*)", run("doctor", status=1))[1]
    run(*command.split())
    run("doctor")
