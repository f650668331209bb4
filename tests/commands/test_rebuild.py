"""One command builds again what cannot serve, as it was asked for, and says of each what kept it from that."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from ngram_builders.registry.registry import Registry
from spd_lsp.cli import main
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.models.checkpoint.hub import STARTER, locate
from tests.ngram_builders.small_tables import writer

FINGERPRINT = ModelTokenizer(locate(STARTER)).fingerprint


@pytest.fixture
def registry(tmp_path):
    return Registry(tmp_path / "data")


@pytest.fixture
def run(registry):
    def run(*arguments, status=0):
        result = CliRunner().invoke(main, ["--data-dir", str(registry.folder), *map(str, arguments)])
        assert result.exit_code == status, result.output
        assert "Traceback" not in result.output
        return result.output

    return run


@pytest.fixture
def shop(tmp_path):
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "shop.py").write_text("def sell(item):\n    return item.price\n" * 20, encoding="utf-8")
    (folder / "shop.go").write_text("package shop\n\nfunc sell() {}\n", encoding="utf-8")
    return folder


def foreign(registry, shop, name="shop", **options):
    """A table of another tokenizer."""
    return registry.install(name, writer(5, 7, fingerprint="a1b2"), roots=[shop], **options)


def test_without_names_what_cannot_serve_is_rebuilt_and_the_rest_is_left(registry, run, shop):
    run("build-ngrams", shop, "--domain", "sound")
    foreign(registry, shop)
    sound = registry.find("sound")
    told = run("ngrams", "rebuild")
    assert re.search(r"^shop: 2 files, ", told, flags=re.MULTILINE)
    assert "sound" not in told
    assert registry.find("sound") == sound
    rebuilt = registry.find("shop")
    assert (rebuilt.fingerprint, rebuilt.roots, rebuilt.tokens) == (FINGERPRINT, sound.roots, sound.tokens)
    assert (
        run("ngrams", "rebuild") == "nothing to rebuild: every table can serve the model that it was built for\n"
    )
    assert run("ngrams", "rebuild", "--model", "starter") == "nothing to rebuild: every table can serve starter\n"


def test_a_table_for_another_model_is_left_where_the_model_has_one_of_the_same_sources(registry, run, shop):
    run("build-ngrams", shop)
    foreign(registry, shop, name="tiny")
    assert run("ngrams", "rebuild", "--model", "starter") == "nothing to rebuild: every table can serve starter\n"
    assert registry.find("tiny").fingerprint == "a1b2"


def test_tables_that_serve_other_models_are_kept_beside_one_new_one(registry, run, shop):
    for name, model in (("shop", "/models/one"), ("shop-two", "/models/two")):
        foreign(registry, shop, name=name, recipe={"model": model})
    run("ngrams", "rebuild", "--model", "starter")
    assert {domain.name: domain.fingerprint for domain in registry.domains()} == {
        "shop": "a1b2",
        "shop-two": "a1b2",
        "shop-starter": FINGERPRINT,
    }
    run("ngrams", "rebuild", "shop-two", "--model", "starter")
    assert registry.find("shop-two").fingerprint == FINGERPRINT


def test_it_is_built_as_it_was_asked_for(registry, run, shop):
    run("build-ngrams", shop, "--language", "go", "--orders", "2-3")
    before = registry.find("shop")
    before.path.unlink()
    run("ngrams", "use", "shop=0.4", "--workspace", shop)
    assert registry.find("shop").fault is not None
    run("ngrams", "rebuild")
    after = registry.find("shop")
    assert (after.orders, after.languages, after.recipe) == ((2, 3), ("go",), before.recipe)
    assert after.path == before.path
    assert f"files in {shop} (0.4)" in run("ngrams", "show", "shop")


def test_a_model_s_folder_is_found_again_from_elsewhere(registry, run, shop, tmp_path, monkeypatch):
    (tmp_path / "mine").symlink_to(locate(STARTER), target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    run("build-ngrams", shop, "--model", "./mine")
    monkeypatch.chdir(shop)
    run("ngrams", "rebuild", "shop")
    assert registry.find("shop").recipe["model"] == str(locate(STARTER).resolve())


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


def test_all_and_names_rebuild_what_could_serve(registry, run, shop):
    run("build-ngrams", shop)
    run("build-ngrams", shop, "--domain", "other")
    registry.install("team", writer(5, fingerprint=FINGERPRINT), recipe={"imported": "team.ngt"})
    built = registry.find("shop").built
    assert len(re.findall(r"^\w+: 2 files", run("ngrams", "rebuild", "--all"), flags=re.MULTILINE)) == 2
    assert re.search(r"^shop: 2 files", run("ngrams", "rebuild", "shop", "shop"), flags=re.MULTILINE)
    assert registry.find("shop").built >= built


def test_what_cannot_be_rebuilt_is_named_and_does_not_keep_the_rest(registry, run, shop, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    foreign(registry, gone, "a-gone")
    gone.rmdir()
    registry.install("b-import", writer(5, fingerprint="a1b2"), recipe={"imported": "team.ngt"})
    foreign(registry, shop)
    told = run("ngrams", "rebuild", "--model", "starter", status=1)
    assert re.search(
        r"a-gone was not rebuilt: .*no longer at .*gone; run: spd-lsp build-ngrams REPO --domain", told
    )
    assert re.search(
        r"b-import was not rebuilt: .*imported from team.ngt, without its sources; import one that was built with",
        told,
    )
    assert re.search(r"^shop: 2 files", told, flags=re.MULTILINE)
    assert "2 of 3 tables could not be rebuilt, see above" in told
    assert registry.find("shop").fingerprint == FINGERPRINT
    assert registry.find("a-gone").fingerprint == "a1b2"


def test_the_command_is_the_one_that_doctor_names(registry, run, shop):
    foreign(registry, shop)
    command = re.search(r"run: spd-lsp (ngrams rebuild .*)", run("doctor", status=1))[1]
    run(*command.split())
    run("doctor")
